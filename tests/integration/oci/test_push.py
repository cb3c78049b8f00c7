"""Pushing to Debian's own registry: with TLS and passwords, over bad lines, onto full disks."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from px.errors import PxError
from px.oci.registry.client import Registry
from px.oci.registry.push import Pushed, push
from px.oci.registry.reference import Reference, parse
from px.oci.registry.referrers import Attachment, attach, fallback_tag
from px.oci.registry.upload import SENT, Sending
from tests.integration.oci.registry_server import PASSWORD, USER, fault_proxy, running_registry
from tests.support.mounts import small_disk
from tests.support.needs import need
from tests.support.referrers import referrers
from tests.unit.oci.images import AMD64, ARM64, Files, make_image, make_release, noise

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home
    from px.oci.blobs import Blobs
    from px.oci.layout import Release

BASE = Files({"bin/big": noise(3_000_000), "etc/os-release": b"ID=test\n", "bin/other": "=bin/big"})
APP = Files({"main.py": b"print('one')\n"})
EDITED = Files({"main.py": b"print('two')\n"})


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    need("docker-registry", "skopeo", "htpasswd", "openssl")


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PX_REGISTRY_TOKEN", "PX_REGISTRY_USERNAME", "PX_REGISTRY_PASSWORD", "REGISTRY_AUTH_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def skopeo(*args: str) -> str:
    done = subprocess.run(["skopeo", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def prepared(home: Home, app: Files = APP) -> tuple[Blobs, Release]:
    blobs, image = make_image(home, BASE, app)
    return blobs, make_release(blobs, image)


def impatient(name: Reference) -> Registry:
    """A registry connection whose pauses between attempts are short."""
    return Registry(name, patience=0.02)


def push_one(blobs: Blobs, what: Release, name: str) -> Pushed:
    (done,) = push(blobs, what, [parse(name)], connect=impatient)
    return done


def test_push_with_tls_and_password_and_pull_back(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry", password=True, tls=True) as server:
        name = f"{server.host}/team/app:1"
        monkeypatch.setenv("PX_EXTRA_CA_CERTS", str(server.ca))
        monkeypatch.setenv("PX_REGISTRY_USERNAME", USER)
        monkeypatch.setenv("PX_REGISTRY_PASSWORD", PASSWORD)
        done = push_one(blobs, what, name)
        assert len(done.sent) == 3
        found = json.loads(skopeo("inspect", "--tls-verify=false", f"--creds={USER}:{PASSWORD}", f"docker://{name}"))
        assert found["Digest"] == what.digest
        target = tmp_path / "pulled"
        skopeo(
            "copy", "--src-tls-verify=false", f"--src-creds={USER}:{PASSWORD}", f"docker://{name}", f"oci:{target}:1"
        )
        assert json.loads((target / "index.json").read_text())["manifests"][0]["digest"] == what.digest
        for digest in what.blob_digests():
            pulled = target / "blobs" / "sha256" / digest.removeprefix("sha256:")
            assert pulled.read_bytes() == blobs.path(digest).read_bytes()


def test_a_code_edit_sends_one_layer(home: Home, tmp_path: Path) -> None:
    blobs, first = prepared(home)
    _, second = prepared(home, EDITED)
    with running_registry(tmp_path / "registry") as server:
        push_one(blobs, first, f"{server.host}/app:1")
        before = len(server.uploaded())
        done = push_one(blobs, second, f"{server.host}/app:2")
        layers = [use.blob.digest for use in second.images[0].layers]
        assert sorted(server.uploaded()[before:]) == sorted([layers[1], second.images[0].config.digest])
        assert done.present == (layers[0],)
        again = push_one(blobs, second, f"{server.host}/app:2")
        assert again.sent == ()
        assert again.sent_bytes == 0


def test_blobs_are_mounted_from_another_repository(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry") as server:
        push_one(blobs, what, f"{server.host}/one:1")
        before = len(server.uploaded())
        done = push_one(blobs, what, f"{server.host}/two:1")
        assert len(done.mounted) == 3
        assert server.uploaded()[before:] == []
        assert skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/two:1")


def test_a_blob_that_cannot_be_mounted_is_sent(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry") as server:
        push_one(blobs, what, f"{server.host}/one:1")
    # The memory says that the blobs are in "one"; a new registry on the same port does not have them.
    with running_registry(tmp_path / "other") as server:
        known = next(home.cache("registries").iterdir())
        import hashlib

        known.rename(known.with_name(hashlib.sha256(server.host.encode()).hexdigest()))
        done = push_one(blobs, what, f"{server.host}/two:1")
        assert len(done.sent) == 3


def test_several_platforms_and_several_names(home: Home, tmp_path: Path) -> None:
    blobs, amd64 = make_image(home, BASE, APP, platform=AMD64)
    _, arm64 = make_image(home, BASE, EDITED, platform=ARM64)
    what = make_release(blobs, amd64, arm64)
    with running_registry(tmp_path / "registry") as server:
        names = [parse(f"{server.host}/app:1"), parse(f"{server.host}/app:latest")]
        push(blobs, what, names, connect=impatient)
        raw = skopeo("inspect", "--tls-verify=false", "--raw", f"docker://{names[1]}")
        platforms = [entry["platform"]["architecture"] for entry in json.loads(raw)["manifests"]]
        assert platforms == ["amd64", "arm64"]
        for arch, image in (("amd64", amd64), ("arm64", arm64)):
            found = skopeo(
                "inspect", "--tls-verify=false", f"--override-arch={arch}", "--config", f"docker://{names[0]}"
            )
            assert json.loads(found)["rootfs"]["diff_ids"] == [use.blob.diff_id for use in image.layers]


@pytest.mark.parametrize("where", ["environment", "config", "helper", "store"])
def test_where_credentials_come_from(where: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry", password=True) as server:
        _give_credentials(where, server.host, tmp_path, monkeypatch)
        assert push_one(blobs, what, f"{server.host}/app:1").sent


def _give_credentials(where: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    folder = tmp_path / "docker-config"
    folder.mkdir()
    if where == "environment":
        monkeypatch.setenv("PX_REGISTRY_USERNAME", USER)
        monkeypatch.setenv("PX_REGISTRY_PASSWORD", PASSWORD)
        return
    config: dict[str, object] = {"auths": {host: {"auth": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}}}
    if where != "config":
        helper = tmp_path / "bin" / "docker-credential-test"
        helper.parent.mkdir()
        answer = json.dumps({"ServerURL": host, "Username": USER, "Secret": PASSWORD})
        helper.write_text(f"#!/bin/sh\nread host\n[ \"$1 $host\" = 'get {host}' ] && echo '{answer}'\n")
        helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{helper.parent}:{os.environ['PATH']}")
        config = {"credHelpers": {host: "test"}} if where == "helper" else {"credsStore": "test"}
    (folder / "config.json").write_text(json.dumps(config))


def test_a_wrong_password_is_named_and_never_shown(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blobs, what = prepared(home)
    monkeypatch.setenv("PX_REGISTRY_USERNAME", USER)
    monkeypatch.setenv("PX_REGISTRY_PASSWORD", "hunter2-wrong")
    with running_registry(tmp_path / "registry", password=True) as server:
        with pytest.raises(PxError) as caught:
            push_one(blobs, what, f"{server.host}/app:1")
        assert caught.value.code == "PX903"
        text = str(caught.value)
        assert "401" in text
        assert "PX_REGISTRY_USERNAME" in text
        assert f"docker login {server.host}" in text
        assert "hunter2" not in text + "".join(capsys.readouterr())
        monkeypatch.setenv("PX_REGISTRY_PASSWORD", PASSWORD)
        assert push_one(blobs, what, f"{server.host}/app:1").sent


def test_no_credentials(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry", password=True) as server:
        with pytest.raises(PxError) as caught:
            push_one(blobs, what, f"{server.host}/app:1")
        assert "none were found" in str(caught.value)


def test_a_registry_that_is_down(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry") as server:
        host = server.host
    with pytest.raises(PxError) as caught:
        push_one(blobs, what, f"{host}/app:1")
    assert caught.value.code == "PX903"
    assert "refused" in caught.value.what
    assert f"curl -i https://{host}/v2/" in str(caught.value)


def test_an_unknown_ca(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry", tls=True) as server:
        with pytest.raises(PxError) as caught:
            push_one(blobs, what, f"{server.host}/app:1")
        assert "PX_EXTRA_CA_CERTS" in str(caught.value)
        done = push(blobs, what, [parse(f"{server.host}/app:1")], insecure=True)
        assert done[0].sent


def test_a_connection_cut_mid_blob_is_made_good(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry") as server:
        with fault_proxy(server, cut_after=1_500_000, cuts=1) as proxy:
            push_one(blobs, what, f"{proxy.host}/app:1")
            assert proxy.made == 1
        assert (
            json.loads(skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/app:1"))["Digest"]
            == what.digest
        )


def test_an_upload_in_chunks_is_resumed_where_it_broke(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    digest = what.images[0].layers[0].blob.digest
    size = blobs.path(digest).stat().st_size
    with running_registry(tmp_path / "registry") as server:
        with fault_proxy(server, cut_at_patch=3, cuts=1) as proxy:
            registry = impatient(parse(f"{proxy.host}/app:1"))
            registry.connect()
            counted: list[int] = []
            assert Sending(registry, digest, blobs.path(digest), counted.append, chunk=1_000_000).run() == SENT
            assert proxy.made == 1
            assert proxy.from_client < size + 400_000, "what had arrived was sent a second time"
            assert sum(counted) == size
        registry = impatient(parse(f"{server.host}/app:1"))
        registry.connect()
        assert registry.has_blob(digest)
        assert b"".join(registry.blob(digest)) == blobs.path(digest).read_bytes()


def test_a_line_that_always_breaks_fails_and_a_retry_completes(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    large = what.images[0].layers[0].blob.digest
    with running_registry(tmp_path / "registry") as server:
        with fault_proxy(server, cut_after=200_000) as proxy:
            with pytest.raises(PxError) as caught:
                push_one(blobs, what, f"{proxy.host}/app:1")
            assert caught.value.code == "PX903"
            assert "complete on this machine" in str(caught.value)
        done = push_one(blobs, what, f"{server.host}/app:1")
        assert large in done.sent
        assert server.uploaded().count(what.images[0].config.digest) == 1, "what was there is not sent again"
        assert skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/app:1")


def test_a_full_disk_at_the_registry(home: Home, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "2m") as disk,
        running_registry(tmp_path / "registry", storage=disk) as server,
    ):
        blobs, what = prepared(home)
        with pytest.raises(PxError) as caught:
            push_one(blobs, what, f"{server.host}/app:1")
        assert caught.value.code == "PX903"
        assert "disk of the registry" in str(caught.value)
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        push_one(blobs, what, f"{server.host}/app:1")
        assert skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/app:1")


def test_a_local_name_cannot_be_pushed(home: Home) -> None:
    blobs, what = prepared(home)
    with pytest.raises(PxError) as caught:
        push(blobs, what, what.names)
    assert caught.value.code == "PX922"


def test_an_attached_document_is_found_from_the_image(home: Home, tmp_path: Path) -> None:
    blobs, what = prepared(home)
    with running_registry(tmp_path / "registry") as server:
        push_one(blobs, what, f"{server.host}/app:1")
        registry = impatient(parse(f"{server.host}/app:1"))
        document = Attachment("application/vnd.cyclonedx+json", b'{"bomFormat":"CycloneDX"}', {"a": "b"})
        at = attach(blobs, registry, what.top, document)
        assert attach(blobs, registry, what.top, document) == at
        assert referrers(registry, what.digest) == [at]
        other = Attachment("application/spdx+json", b"{}", {})
        attach(blobs, registry, what.top, other)
        assert {d.artifact_type for d in referrers(registry, what.digest)} == {document.media_type, other.media_type}
        # The registry does not know referrers, so the list is where clients look for it.
        tag = fallback_tag(what.digest)
        listed = skopeo("inspect", "--tls-verify=false", "--raw", f"docker://{server.host}/app:{tag}")
        assert len(json.loads(listed)["manifests"]) == 2
