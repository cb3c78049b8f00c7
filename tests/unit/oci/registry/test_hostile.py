"""Registries, token services and other servers that mean harm: real ones, on loopback.

A proxy plays all hosts, so that a name of another host needs no network.
"""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from px import bounds
from px.http import FetchError, Http
from px.oci.registry.auth import Authenticator, Challenge, Credentials
from px.oci.registry.client import Registry, RegistryError
from px.oci.registry.reference import parse
from tests.support.bounded import memory, no_hang

PASSWORD, REFRESH = "hunter2", "a-refresh-token"
SECRETS = (PASSWORD, REFRESH, base64.b64encode(f"me:{PASSWORD}".encode()).decode())


@dataclass
class Answer:
    """What a host says to every request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Callable[[], Iterator[bytes]] = b'{"token": "t"}'


class World:
    """All hosts, and what they were sent."""

    def __init__(self) -> None:
        self.hosts: dict[str, Answer] = {}
        self.sent: dict[str, str] = {}
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host = urlsplit(self.path).hostname or str(self.headers["Host"])
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                world.sent[host] = world.sent.get(host, "") + str(self.headers) + body.decode()
                answer = world.hosts.get(host, Answer())
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):  # px may hang up
                    self.wfile.writelines([answer.body] if isinstance(answer.body, bytes) else answer.body())

            do_POST = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def leaked(self, host: str) -> bool:
        return any(secret in self.sent.get(host, "") for secret in SECRETS)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World()
    threading.Thread(target=found.server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("http_proxy", found.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield found
    found.server.shutdown()
    found.server.server_close()


def ask(realm: str, *, refresh: bool = False) -> str:
    """The header that comes of a challenge, for a registry that the user allows to speak plain http."""
    found = Credentials("test", identity_token=REFRESH) if refresh else Credentials("test", "me", PASSWORD)
    who = Authenticator(Http(), "registry.example.org:5000", found, plain_allowed=True)
    assert who.challenged(f'Bearer realm="{realm}"', "", {})
    return who.header("repository:a:pull")["Authorization"]


def test_a_plain_realm_on_the_registrys_own_host_gets_the_password(world: World) -> None:
    assert ask("http://registry.example.org/token") == "Bearer t"
    assert world.leaked("registry.example.org")


@pytest.mark.parametrize("refresh", [False, True])
def test_a_plain_realm_on_another_host_gets_nothing(world: World, refresh: bool) -> None:
    for realm in (
        "http://evil.example.org/token",
        "http://registry.example.org@evil.example.org/",
        "http://127.0.0.1/",
    ):
        with pytest.raises(FetchError, match="another host"):
            ask(realm, refresh=refresh)
    assert world.sent == {}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("refresh", [False, True])
def test_a_realm_that_leads_elsewhere_takes_no_secret_along(world: World, status: int, refresh: bool) -> None:
    world.hosts["registry.example.org"] = Answer(status, {"Location": "http://evil.example.org/"})
    with suppress(FetchError):
        ask("http://registry.example.org/token", refresh=refresh)
    assert not world.leaked("evil.example.org")


@pytest.mark.parametrize(
    "realm", ["http://[", "https://[::1", "http://a:b:c/", "https://\x00/", "//", "https://a:99999/"]
)
def test_a_realm_that_is_no_address(world: World, realm: str) -> None:
    with pytest.raises(FetchError):
        ask(realm)


def test_a_challenge_as_long_as_it_can_be() -> None:
    with no_hang():
        Challenge.parse("Bearer " + "a" * 65_000)
        Challenge.parse(", " * 30_000)
        Challenge.parse("Bearer " + "a=" * 30_000)


def registry(world: World) -> Registry:
    found = Registry(parse(world.url.removeprefix("http://") + "/a/b:1"), patience=0)
    found._base = world.url  # it would try https first, and report how that failed
    return found


@pytest.mark.parametrize(
    "where", ["http://[", "http://a:b/", "//", "http://127.0.0.1:99999/", "\x7f", "http://\udcff/"]
)
def test_redirects_to_nowhere(world: World, where: str) -> None:
    world.hosts[world.url.removeprefix("http://")] = Answer(
        307, {"Location": where.encode("utf-8", "replace").decode()}
    )
    with suppress(FetchError, RegistryError), no_hang():
        registry(world)._ping()


def test_words_that_steer_a_terminal(world: World) -> None:
    said = '{"errors": [{"code": "DENIED", "message": "\\u001b[2Jno\\u0007\\u202e"}]}'
    world.hosts[world.url.removeprefix("http://")] = Answer(403, body=said.encode())
    asked = registry(world)
    with pytest.raises(RegistryError) as caught:
        asked.manifest("1")
    assert "DENIED: ?[2Jno??" in str(asked.failure("asking", caught.value))


def endless() -> Iterator[bytes]:
    for _ in range(10_000):
        yield bytes(1 << 16)


def test_an_answer_without_end(world: World) -> None:
    world.hosts[world.url.removeprefix("http://")] = Answer(body=endless)
    with memory(250 << 20), no_hang():
        with pytest.raises(FetchError, match="too large"):
            Http().request("GET", world.url)
        with pytest.raises(FetchError, match="too large"):
            registry(world).manifest("1")


def test_an_answer_that_is_a_bomb(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "DOCUMENT", 1 << 20)
    body = gzip.compress(bytes(64 << 20))
    world.hosts[world.url.removeprefix("http://")] = Answer(headers={"Content-Encoding": "gzip"}, body=body)
    with memory(50 << 20), pytest.raises(FetchError, match="too large"):
        Http().request("GET", world.url)


def test_an_answer_is_read_as_before(world: World) -> None:
    here = world.url.removeprefix("http://")
    world.hosts[here] = Answer(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"hello"))
    assert Http().get(world.url) == b"hello"
    world.hosts[here] = Answer(404, {"Content-Length": "0"}, b"")
    answer = Http().request("GET", world.url)
    assert (answer.status, answer.data) == (404, b"")
    with pytest.raises(FetchError, match="404"):
        Http().get(world.url)


def test_a_server_that_asks_to_wait_for_a_day(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    world.hosts[world.url.removeprefix("http://")] = Answer(503, {"Retry-After": "86400"})
    with pytest.raises(FetchError, match="503"):
        Http().get(world.url)
    assert naps
    assert max(naps) <= 60


@pytest.mark.parametrize("said", ["9" * 5000, "Thu, 99 Foo 99999 99:99:99 +9999", "0 0 0 0 0", "\u0661", "-1", "\xb2"])
def test_a_time_to_wait_that_is_none(world: World, said: str) -> None:
    from px.oci.registry.client import _retry_after

    world.hosts[world.url.removeprefix("http://")] = Answer(404, {"Retry-After": said.encode().decode("latin-1")})
    assert isinstance(_retry_after(Http().request("GET", world.url, retries=False)), float)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[]", b"{}", b"null", b'{"token": []}', b"\xff", b""])
def test_a_token_that_is_none(world: World, body: bytes) -> None:
    world.hosts["registry.example.org"] = Answer(body=body)
    with pytest.raises(FetchError, match="did not send a token"):
        ask("http://registry.example.org/token")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"errors": [1]}', b'{"errors": {"a": 1}}', b'{"errors": [{"detail": 1}]}']
)
def test_a_refusal_that_is_not_one(world: World, body: bytes) -> None:
    world.hosts[world.url.removeprefix("http://")] = Answer(400, body=body)
    with pytest.raises(RegistryError, match="400"):
        registry(world)._ping()
