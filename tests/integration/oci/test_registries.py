"""Registries differ within the specification: each of these behaviours is some registry's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from px.errors import PxError
from px.oci.image import read_images
from px.oci.registry.client import Registry
from px.oci.registry.push import Pushed, push
from px.oci.registry.reference import Reference, parse
from px.oci.registry.referrers import Attachment, NotTakenError, attach, fallback_tag
from px.oci.registry.upload import Sending
from px.oci.sources import RegistrySource
from tests.servers.registry import Answer, OciRegistry, Request, refusal, running
from tests.support.referrers import referrers
from tests.unit.oci.images import Files, make_image, make_release, noise

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home
    from px.oci.blobs import Blobs
    from px.oci.layout import Release

BILL = Attachment("application/vnd.cyclonedx+json", b'{"bomFormat":"CycloneDX"}', {"a": "b"})


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PX_REGISTRY_TOKEN", raising=False)
    monkeypatch.setenv("PX_REGISTRY_USERNAME", "me")
    monkeypatch.setenv("PX_REGISTRY_PASSWORD", "hunter2")


def prepared(home: Home) -> tuple[Blobs, Release]:
    blobs, image = make_image(home, Files({"bin/big": noise(200_000)}), Files({"main.py": b"print()\n"}))
    return blobs, make_release(blobs, image)


def impatient(name: Reference) -> Registry:
    return Registry(name, patience=0.001)


def push_to(server: OciRegistry, home: Home, path: str = "team/app") -> tuple[Blobs, Release, Pushed]:
    blobs, what = prepared(home)
    (pushed,) = push(blobs, what, [parse(f"{server.host}/{path}:1")], connect=impatient)
    (read,) = read_images(RegistrySource(impatient(parse(f"{server.host}/{path}:1"))))
    assert read.digest == what.digest
    return blobs, what, pushed


def test_a_registry_that_knows_referrers(home: Home) -> None:
    with running() as server:
        blobs, what, _ = push_to(server, home)
        registry = impatient(parse(f"{server.host}/team/app:1"))
        at = attach(blobs, registry, what.top, BILL)
        assert attach(blobs, registry, what.top, BILL) == at
        other = attach(blobs, registry, what.top, Attachment("application/spdx+json", b"{}"))
        assert referrers(registry, what.digest) == sorted([at, other], key=lambda d: d.digest)
        assert ("team/app", fallback_tag(what.digest)) not in server.manifests, "the registry lists them itself"


def test_a_registry_that_does_not_know_referrers(home: Home) -> None:
    with running(OciRegistry(knows_referrers=False)) as server:
        blobs, what, _ = push_to(server, home)
        registry = impatient(parse(f"{server.host}/team/app:1"))
        at = attach(blobs, registry, what.top, BILL)
        assert referrers(registry, what.digest) == [at]
        listed = json.loads(server.manifests["team/app", fallback_tag(what.digest)][1])
        assert [entry["digest"] for entry in listed["manifests"]] == [at.digest]


@pytest.mark.parametrize("absolute", [False, True])
def test_where_uploads_continue(home: Home, *, absolute: bool) -> None:
    with running() as server:
        server.absolute = f"http://{server.host}" if absolute else ""
        _, _, pushed = push_to(server, home)
        assert len(pushed.sent) == 3


def test_an_address_that_spells_out_the_usual_port_is_the_same_registry() -> None:
    registry = Registry(parse("registry.example.org/team/app:1"))
    assert registry.is_ours("https://registry.example.org:443/v2/x")
    assert registry.is_ours("https://REGISTRY.example.org/v2/x")
    assert not registry.is_ours("https://registry.example.org:444/v2/x")
    assert not registry.is_ours("https://registry.example.org.evil.org/v2/x")


@pytest.mark.parametrize("status", [307, 308])
def test_writes_are_redirected(home: Home, status: int) -> None:
    """Begun uploads, their pieces and manifests go on to where the registry sends them, without the password."""
    with running() as behind, running() as front:

        def elsewhere(request: Request) -> Answer | None:
            if "authorization" not in request.headers:
                return Answer(401, {"WWW-Authenticate": 'Basic realm="x"'})
            if request.method in ("GET", "HEAD") and request.path == "/v2/":
                return None
            return Answer(status, {"Location": f"http://{behind.host}{request.path}"})

        front.first = elsewhere
        push_to(front, home)
        assert not front.blobs
        assert not front.manifests
        assert len(behind.blobs) == 3
        assert {"authorization" in request.headers for request in behind.requests} == {False}


def test_a_least_size_of_chunks(home: Home, tmp_path: Path) -> None:
    blobs, _ = prepared(home)
    content = noise(100_000, seed=3)
    digest = blobs.add(content)
    with running(OciRegistry(least_chunk=30_000)) as server:
        registry = impatient(parse(f"{server.host}/app:1"))
        registry.connect()
        Sending(registry, digest, blobs.path(digest), chunk=10_000).run()
        assert server.blobs["app", digest] == content
        assert [len(r.body) for r in server.requests if r.method == "PATCH"] == [30_000, 30_000, 30_000, 10_000]


@pytest.mark.parametrize("spelling", ["seconds", "date", "nonsense", "none"])
def test_a_registry_that_asks_for_patience(home: Home, spelling: str) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=5), usegmt=True)
    asked = {"seconds": "5", "date": later, "nonsense": "soon", "none": ""}[spelling]
    refused: set[tuple[str, str]] = set()

    def busy(request: Request) -> Answer | None:
        if request.method == "GET" or (request.method, request.path) in refused:
            return None
        refused.add((request.method, request.path))
        return refusal(429, "TOOMANYREQUESTS", **({"Retry-After": asked} if asked else {}))

    with running() as server:
        server.first = busy
        push_to(server, home)
        assert {method for method, _ in refused} == {"HEAD", "POST", "PATCH", "PUT"}


def test_a_token_that_ends_in_the_middle(home: Home) -> None:
    """All tokens end with the first piece of a blob, and once more with the first manifest."""
    good: set[str] = set()
    ended: set[str] = set()
    made: list[str] = []

    def tokens(request: Request) -> Answer | None:
        if request.path == "/token":
            assert request.headers["authorization"].startswith("Basic ")
            made.append(f"t{len(made)}")
            good.add(made[-1])
            return Answer(200, {}, json.dumps({"token": made[-1]}).encode())
        event = "manifest" if request.method == "PUT" and "/manifests/" in request.path else request.method
        if event in ("PATCH", "manifest") and event not in ended:
            ended.add(event)
            good.clear()
        if request.headers.get("authorization", "").removeprefix("Bearer ") in good:
            return None
        realm = f'Bearer realm="http://{server.host}/token",service="x",error="invalid_token"'
        return refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": realm})

    with running() as server:
        server.first = tokens
        push_to(server, home)
        assert ended == {"PATCH", "manifest"}


def test_a_registry_that_offers_two_ways_to_log_in(home: Home) -> None:
    def tokens(request: Request) -> Answer | None:
        if request.path == "/token":
            return Answer(200, {}, b'{"access_token":"t"}')
        if request.headers.get("authorization") == "Bearer t":
            return None
        both = f'Bearer realm="http://{server.host}/token",service="x", Basic realm="the same password"'
        return refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": both})

    with running() as server:
        server.first = tokens
        push_to(server, home)


@pytest.mark.parametrize("who", ["token service", "registry"])
@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_mount_that_is_refused_is_an_upload(home: Home, who: str, status: int) -> None:
    """Whoever may push here may be forbidden to look there."""

    def forbidding(request: Request) -> Answer | None:
        if request.path == "/token":
            refused = who == "token service" and "team/app" in request.scopes and "other/app" in request.scopes
            return refusal(status, "DENIED") if refused else Answer(200, {}, b'{"token":"t"}')
        if "authorization" not in request.headers:
            realm = f'Bearer realm="http://{server.host}/token",service="x"'
            return refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": realm})
        return refusal(status, "DENIED") if who == "registry" and "mount" in request.query else None

    with running() as server:
        server.first = forbidding
        push_to(server, home)
        _, _, pushed = push_to(server, home, "other/app")
        assert len(pushed.sent) == 3
        assert pushed.mounted == ()


def test_a_registry_that_forgets_an_upload(home: Home) -> None:
    lost: list[str] = []

    def forgetful(request: Request) -> Answer | None:
        if request.method == "PATCH" and not lost:
            lost.append(request.path)
            del server.uploads[request.path.rpartition("/")[2]]
        return None

    with running() as server:
        server.first = forgetful
        push_to(server, home)
        assert lost


def test_a_registry_that_takes_images_only(home: Home) -> None:
    with running() as server:
        blobs, what, _ = push_to(server, home)
        refused = refusal(400, "MANIFEST_INVALID", "unknown config type")
        server.first = lambda r: refused if r.method == "PUT" and b"artifactType" in r.body else None
        with pytest.raises(NotTakenError, match="unknown config type"):
            attach(blobs, impatient(parse(f"{server.host}/team/app:1")), what.top, BILL)


def test_a_manifest_that_is_refused_is_an_error_with_the_registrys_words(home: Home) -> None:
    with running() as server:
        server.first = lambda r: refusal(400, "MANIFEST_INVALID", "no such thing here") if r.method == "PUT" else None
        with pytest.raises(PxError) as caught:
            push_to(server, home)
        assert "MANIFEST_INVALID: no such thing here" in str(caught.value)
