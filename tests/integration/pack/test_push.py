"""``px pack image --push`` to Debian's registry: with TLS and a password, over bad lines, onto full disks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from px.oci.registry.client import Registry
from px.oci.registry.reference import parse
from tests.integration.oci.registry_server import PASSWORD, USER, RunningRegistry, fault_proxy, running_registry
from tests.integration.pack.projects import Project, run
from tests.servers.registry import refusal, running
from tests.support.mounts import small_disk
from tests.support.needs import need

LOGIN = {"PX_REGISTRY_USERNAME": USER, "PX_REGISTRY_PASSWORD": PASSWORD}


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    need("docker-registry", "skopeo", "htpasswd", "openssl")


def skopeo(*args: str) -> str:
    return run("skopeo", *args).stdout


def digest_at(server: RunningRegistry, name: str) -> str:
    found = json.loads(skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/{name}"))
    return str(found["Digest"])


def test_with_tls_and_password_then_a_code_edit(project: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry", password=True, tls=True) as server:
        name = f"{server.host}/team/demo"
        environment = {"PX_EXTRA_CA_CERTS": str(server.ca), **LOGIN}
        first = project.pack("--push", "--tag", f"{name}:1", "--tag", f"{name}:latest", **environment)
        assert sorted(first.details["pushed"][0]["names"]) == [f"{name}:1", f"{name}:latest"]
        creds = ("--src-tls-verify=false", f"--src-creds={USER}:{PASSWORD}")
        for tag in ("1", "latest"):
            skopeo("copy", *creds, f"docker://{name}:{tag}", f"oci:{tmp_path}/pulled:{tag}")
        index = json.loads((tmp_path / "pulled" / "index.json").read_text())
        assert {m["digest"] for m in index["manifests"]} == {first.digest}
        assert project.verify(f"{name}:1", **environment).returncode == 0
        # A password that the environment does not have, from where docker keeps it.
        config = Path(os.environ["DOCKER_CONFIG"])
        config.mkdir()
        run("skopeo", "login", "--tls-verify=false", "--authfile", config / "config.json", "-u", USER, "-p", PASSWORD,
            server.host)  # fmt: skip
        project.replace("src/demo_app/__init__.py", "return 3", "return 4")
        project.commit()
        before = len(server.uploaded())
        second = project.pack("--push", "--tag", f"{name}:2", PX_EXTRA_CA_CERTS=str(server.ca))
        changed = {d for what, d in second.layers().items() if first.layers()[what] != d}
        assert set(second.layers()) - {what for what, d in second.layers().items() if d not in changed} == {"app"}
        blobs = set(server.uploaded()[before:])
        assert changed <= blobs
        assert not blobs & set(first.layers().values()), "a layer that was there was sent again"
        sent = second.details["pushed"][0]
        assert changed < set(sent["sent"])
        assert len(sent["sent"]) == 2  # the layer and the image's config
        done = project.verify(f"{name}:1", **environment)
        assert done.returncode == 1
        assert "~ app/src/demo_app/__init__.py" in done.stdout


def test_the_bill_of_materials(shared: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as server:
        made = shared.pack("--push", "--tag", f"{server.host}/demo:1", "--sbom", tmp_path / "bill.json")
        # This registry does not know referrers: clients look under this tag.
        tag = made.digest.replace(":", "-")
        listed = json.loads(skopeo("inspect", "--tls-verify=false", "--raw", f"docker://{server.host}/demo:{tag}"))
        (entry,) = listed["manifests"]
        assert entry["artifactType"] == "application/vnd.cyclonedx+json"
        at = f"docker://{server.host}/demo@{entry['digest']}"
        manifest = json.loads(skopeo("inspect", "--tls-verify=false", "--raw", at))
        assert manifest["subject"]["digest"] == made.digest
        (document,) = manifest["layers"]
        attached = next(server.storage.glob(f"**/{document['digest'][7:]}/data")).read_bytes()
    assert attached == (tmp_path / "bill.json").read_bytes()
    bill = json.loads(attached)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {(c["name"], c["version"]): c for c in bill["components"]}
    assert found["hello", "1.0"]["purl"] == "pkg:pypi/hello@1.0"
    assert found["hello", "1.0"]["hashes"][0]["alg"] == "SHA-256"
    debian = next(c for (name, _), c in found.items() if name == "zlib1g")
    assert debian["purl"].startswith("pkg:deb/debian/zlib1g@")
    assert debian["licenses"]
    assert debian["purl"].endswith("&distro=debian-12&upstream=zlib")
    assert shared.pack("--sbom", tmp_path / "again.json").digest == made.digest
    assert (tmp_path / "again.json").read_bytes() == attached


def test_a_registry_that_takes_no_bill_of_materials_has_the_image(shared: Project, tmp_path: Path) -> None:
    with running() as server:
        refused = refusal(400, "MANIFEST_INVALID", "unknown config type")
        server.first = lambda r: refused if r.method == "PUT" and b"artifactType" in r.body else None
        done = shared.px("pack", "image", "--push", "--tag", f"{server.host}/demo:1")
        assert "does not take the bill of materials" in done.stderr
        assert "MANIFEST_INVALID: unknown config type" in done.stderr
        assert ("demo", "1") in server.manifests
        assert re.search(rf"^  pushed: {server.host}/demo: \d blobs sent \(\d+\.\d MB\)$", done.stdout, re.MULTILINE)
        again = shared.px("pack", "image", "--push", "--tag", f"{server.host}/demo:1").stdout
        assert re.search(r"^  pushed: .*: nothing sent, \d there already$", again, re.MULTILINE)


def test_offline_asks_no_registry(shared: Project) -> None:
    with running() as server:
        said = shared.refused("--offline", "--push", "--tag", f"{server.host}/demo:1", code=121)
        assert said.startswith("PX040  --push --offline: a push needs the network.")
        done = shared.px("pack", "verify", "--offline", f"{server.host}/demo:1", check=False)
        assert done.stderr.startswith("PX923"), done.stderr
        assert server.requests == []


def test_a_registry_that_cannot_be_read_says_what_to_check(shared: Project) -> None:
    with running() as server:
        server.first = lambda _: refusal(401, "UNAUTHORIZED", **{"WWW-Authenticate": 'Basic realm="x"'})
        done = shared.verify(f"{server.host}/demo:1")
        assert done.stderr.startswith(f"PX923  {server.host}/demo:1")
        assert f"docker login {server.host}" in done.stderr
    down = shared.verify("127.0.0.1:1/demo:1")
    assert "Check that the registry is up" in down.stderr


def test_the_bill_of_materials_where_referrers_are_known(shared: Project, tmp_path: Path) -> None:
    with running() as server:
        made = shared.pack("--push", "--tag", f"{server.host}/demo:1", "--sbom", tmp_path / "bill.json")
        registry = Registry(parse(f"{server.host}/demo:1"))
        registry.connect()
        answer = registry.request("GET", registry.url(f"referrers/{made.digest}"))
        (found,) = json.loads(answer.data)["manifests"]
        (document,) = json.loads(server.manifests["demo", found["digest"]][1])["layers"]
        assert server.blobs["demo", document["digest"]] == (tmp_path / "bill.json").read_bytes()
        assert {name for repo, name in server.manifests if not name.startswith("sha256:")} == {"1"}


def test_a_wrong_password(shared: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry", password=True) as server:
        flags = ("--push", "--tag", f"{server.host}/demo:1", "--out", str(tmp_path / "x.tar"))
        said = shared.refused(*flags, PX_REGISTRY_USERNAME=USER, PX_REGISTRY_PASSWORD="hunter2-wrong")
        assert said.startswith("PX903")
        assert "401" in said
        assert f"docker login {server.host}" in said
        assert "hunter2" not in said
        # What was built is good: the file was written, and the next push has only to send.
        assert shared.verify(tmp_path / "x.tar").returncode == 0
        made = shared.pack(*flags, **LOGIN)
    assert made.details["pushed"][0]["sent"]


def test_a_registry_that_is_down_then_up(shared: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as server:
        host = server.host
    said = shared.refused("--push", "--tag", f"{host}/demo:1")
    assert said.startswith("PX903")
    assert "refused" in said
    assert "curl" in said
    with running_registry(tmp_path / "registry") as server:
        made = shared.pack("--push", "--tag", f"{server.host}/demo:1")
        assert digest_at(server, "demo:1") == made.digest


def test_a_line_that_is_cut(shared: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as server:
        with fault_proxy(server, cut_after=5_000_000, cuts=1) as proxy:
            made = shared.pack("--push", "--tag", f"{proxy.host}/demo:1")
            assert proxy.made == 1, "the push went through a cut"
        assert digest_at(server, "demo:1") == made.digest


@pytest.mark.slow  # the patience of a real push: it tries for a while before it gives up
def test_a_line_that_is_always_cut(shared: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as server:
        with fault_proxy(server, cut_after=300_000) as proxy:
            said = shared.refused("--push", "--tag", f"{proxy.host}/demo:1")
            assert said.startswith("PX903")
            assert "complete on this machine" in said
        made = shared.pack("--push", "--tag", f"{server.host}/demo:1")
        assert digest_at(server, "demo:1") == made.digest


@pytest.mark.slow
def test_a_registry_whose_disk_is_full(shared: Project, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "20m") as disk,
        running_registry(tmp_path / "registry", storage=disk) as server,
    ):
        said = shared.refused("--push", "--tag", f"{server.host}/demo:1")
        assert said.startswith("PX903")
        assert "disk of the registry" in said
        subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
        made = shared.pack("--push", "--tag", f"{server.host}/demo:1")
        assert digest_at(server, "demo:1") == made.digest


def test_plain_http_elsewhere_needs_to_be_asked_for(shared: Project) -> None:
    """The name is one that no resolver knows: what is tried is what matters."""
    said = shared.refused("--push", "--tag", "registry.invalid/demo:1")
    assert said.startswith("PX903")
    assert "https://registry.invalid" in said


def test_a_second_repository_gets_its_blobs_by_mounting(shared: Project, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as server:
        shared.pack("--push", "--tag", f"{server.host}/one:1")
        before = len(server.uploaded())
        made = shared.pack("--push", "--tag", f"{server.host}/two:1")
        assert made.details["pushed"][0]["sent"] == []
        assert not set(server.uploaded()[before:]) & set(made.layers().values())
        assert digest_at(server, "two:1") == made.digest
