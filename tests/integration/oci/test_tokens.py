"""Registries that hand out tokens: Debian's registry in token mode, with a small token service of ours.

The service is real enough for the registry, which checks its signatures; it is here because Debian has none.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from px.errors import PxError
from px.oci.image import compare, read_images
from px.oci.layout import write_layout
from px.oci.registry.client import Registry
from px.oci.registry.push import push
from px.oci.registry.reference import Reference, parse
from px.oci.sources import RegistrySource, source_of
from tests.integration.oci.registry_server import PASSWORD, USER, running_registry
from tests.support.needs import need
from tests.unit.oci.images import Files, make_image, make_release, noise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.home import Home

BASE, APP = Files({"bin/big": noise(200_000)}), Files({"main.py": b"print()\n"})
REFRESH = "a refresh token"


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    need("docker-registry", "openssl")


class TokenService:
    """Signs what was asked for, if the password or the refresh token is right."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder, self.asked = folder, list[list[str]]()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tokens", "-keyout",
             "key.pem", "-out", "cert.pem"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.answer(self, parse_qs(urlsplit(self.path).query))

            def do_POST(self) -> None:
                service.answer(self, parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def yaml(self) -> str:
        port = self.server.server_address[1]
        where = f"realm: http://127.0.0.1:{port}/token, service: registry, issuer: tester"
        return f"auth: {{token: {{{where}, rootcertbundle: {self.folder}/cert.pem}}}}\n"

    def answer(self, request: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> None:
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        known = request.headers.get("Authorization") == basic or query.get("refresh_token") == [REFRESH]
        scopes = [scope for value in query.get("scope", []) for scope in value.split()]
        self.asked.append(scopes)
        body = json.dumps({"token": self.token(scopes)} if known else {"details": "who are you?"}).encode()
        request.send_response(200 if known else 401)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def token(self, scopes: list[str]) -> str:
        access = [
            dict(zip(("type", "name"), s.split(":")[:2], strict=True), actions=s.split(":")[2].split(","))
            for s in scopes
        ]
        lines = (self.folder / "cert.pem").read_text().splitlines()
        now = int(time.time())
        claims = {"iss": "tester", "sub": USER, "aud": "registry", "exp": now + 300, "nbf": now - 5, "iat": now - 5}
        head = {"typ": "JWT", "alg": "RS256", "x5c": ["".join(lines[1:-1])]}
        signed = b".".join(
            _plain(json.dumps(part).encode()) for part in (head, {**claims, "jti": "1", "access": access})
        )
        sign = ["openssl", "dgst", "-sha256", "-sign", str(self.folder / "key.pem")]
        signature = subprocess.run(sign, input=signed, capture_output=True, check=True).stdout
        return (signed + b"." + _plain(signature)).decode()


def _plain(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


@contextmanager
def service(folder: Path) -> Iterator[TokenService]:
    found = TokenService(folder)
    threading.Thread(target=found.server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()


def impatient(name: Reference) -> Registry:
    return Registry(name, patience=0.02)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PX_REGISTRY_TOKEN", raising=False)
    monkeypatch.setenv("PX_REGISTRY_USERNAME", USER)
    monkeypatch.setenv("PX_REGISTRY_PASSWORD", PASSWORD)


def test_push_mount_and_read_back_with_tokens(home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, BASE, APP)
    what = make_release(blobs, image)
    with service(tmp_path / "tokens") as tokens, running_registry(tmp_path / "registry", extra=tokens.yaml) as server:
        (first,) = push(blobs, what, [parse(f"{server.host}/team/one:1")], connect=impatient)
        assert len(first.sent) == 3
        assert tokens.asked.count(["repository:team/one:pull,push"]) == 1, "one token serves all blobs"
        (second,) = push(blobs, what, [parse(f"{server.host}/team/two:1")], connect=impatient)
        assert len(second.mounted) == 3
        assert ["repository:team/two:pull,push", "repository:team/one:pull"] in tokens.asked
        (read,) = read_images(RegistrySource(impatient(parse(f"{server.host}/team/two:1"))))
        write_layout(blobs, what, tmp_path / "layout")
        (ours,) = read_images(source_of(str(tmp_path / "layout")))
        assert compare(ours, read) == []
        _, other = make_image(home, Files({"bin/big": noise(200_001)}), APP)
        write_layout(blobs, make_release(blobs, other), tmp_path / "layout")
        (changed,) = read_images(source_of(str(tmp_path / "layout")))
        assert "~ bin/big: size 200000 → 200001" in "\n".join(str(d) for d in compare(read, changed))


def test_a_wrong_password_at_the_token_service(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, image = make_image(home, BASE, APP)
    monkeypatch.setenv("PX_REGISTRY_PASSWORD", "hunter2")
    with service(tmp_path / "tokens") as tokens, running_registry(tmp_path / "registry", extra=tokens.yaml) as server:
        with pytest.raises(PxError) as caught:
            push(blobs, make_release(blobs, image), [parse(f"{server.host}/one:1")], connect=impatient)
        assert caught.value.code == "PX903"
        assert "docker login" in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_refresh_tokens_and_ready_made_tokens(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, image = make_image(home, BASE, APP)
    what = make_release(blobs, image)
    monkeypatch.delenv("PX_REGISTRY_USERNAME")
    with service(tmp_path / "tokens") as tokens, running_registry(tmp_path / "registry", extra=tokens.yaml) as server:
        (tmp_path / "config.json").write_text(json.dumps({"auths": {server.host: {"identitytoken": REFRESH}}}))
        assert push(blobs, what, [parse(f"{server.host}/one:1")], connect=impatient)[0].sent
        monkeypatch.setenv("PX_REGISTRY_TOKEN", tokens.token(["repository:three:pull,push"]))
        asked = len(tokens.asked)
        assert push(blobs, what, [parse(f"{server.host}/three:1")], connect=impatient)[0].sent
        assert len(tokens.asked) == asked
