"""Other people's tools take what the command wrote, and the app answers there as in ``px run --sandbox``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.oci.test_tools import check
from tests.integration.pack.projects import Project, image_in, run
from tests.support.dockerd import DockerEngine, running_docker
from tests.support.needs import need


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    need("skopeo", "umoci")


@pytest.fixture(scope="module")
def docker() -> Iterator[DockerEngine]:
    with running_docker() as engine:
        yield engine


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_skopeo_inspects_and_copies(shared: Project, tmp_path: Path, compression: str) -> None:
    made = shared.pack("--out", tmp_path / "x.tar", "--compression", compression)
    archive = f"oci-archive:{tmp_path}/x.tar"
    found = json.loads(run("skopeo", "inspect", archive).stdout)
    assert found["Digest"] == made.digest
    assert found["Layers"] == list(made.layers().values())
    assert found["Labels"]["px.sbx_id"] == made.details["images"][0]["sbx_id"]
    run("skopeo", "copy", archive, f"oci:{tmp_path}/copy:1")
    assert image_in(tmp_path / "copy").digest == made.digest
    assert shared.verify(tmp_path / "copy").returncode == 0


def test_umoci_unpacks(shared: Project, tmp_path: Path) -> None:
    shared.pack("--out", f"{tmp_path}/layout/")
    run("umoci", "unpack", "--rootless", "--image", tmp_path / "layout:1.2.3", tmp_path / "bundle")
    root = tmp_path / "bundle" / "rootfs"
    source = "src/demo_app/__init__.py"
    assert (root / "app" / source).read_bytes() == (shared.root / source).read_bytes()
    assert (root / "opt/px/env/bin/demo-app").stat().st_mode & 0o111
    config = json.loads((tmp_path / "bundle" / "config.json").read_text())
    assert config["process"]["args"] == ["demo-app"]
    assert config["process"]["cwd"] == "/app"
    assert config["process"]["user"]["uid"] == 1000
    # What scanners read: dpkg's list and the metadata of Python packages.
    assert "Package: libc6\n" in (root / "var/lib/dpkg/status.d/libc6").read_text()
    assert (root / "opt/px/env/lib/python3.11/site-packages/hello-1.0.dist-info/METADATA").is_file()


def test_docker_answers_as_the_sandbox_does(project: Project, tmp_path: Path, docker: DockerEngine) -> None:
    # The sandbox of development has the dev group; without it, the two have the same id.
    project.px("sync", "--sandbox", "--no-dev")
    name = "demo.example.org/demo"
    project.pack("--out", tmp_path / "x.tar", "--tag", f"{name}:oci")
    project.pack("--out", tmp_path / "d.tar", "--tag", f"{name}:docker", "--format", "docker")
    ours = project.px("run", "--sandbox", "demo-app", "one", "two words", check=False, PYTHONDONTWRITEBYTECODE="1")
    for archive, tag in ((tmp_path / "x.tar", "oci"), (tmp_path / "d.tar", "docker")):
        docker.run("load", "-i", archive)
        theirs = docker.run("run", "--rm", "--network=none", f"{name}:{tag}", "one", "two words", check=False)
        assert theirs.returncode == ours.returncode == 3, theirs.stderr
        # The last line lists /app: in development it is the working tree, with .git and all.
        assert theirs.stdout.splitlines()[:4] == ours.stdout.splitlines()[:4]
        assert theirs.stdout.splitlines()[0] == "arguments one two words"
        assert "demo-app==1.2.3 hello==1.0 leaf==1.0" in theirs.stdout
    who = docker.run("run", "--rm", "--network=none", "--entrypoint", "id", f"{name}:oci").stdout
    assert who.startswith("uid=1000(")
    home = ("--entrypoint", "sh", f"{name}:oci", "-c", "touch ~/.cache && ls -A ~")
    assert docker.run("run", "--rm", "--network=none", *home).stdout == ".cache\n", "its home is its own"
    docker.run("save", f"{name}:oci", "-o", tmp_path / "saved.tar")
    assert project.verify(tmp_path / "saved.tar").returncode == 0, "what went through Docker is the same"
    docker.run("image", "rm", f"{name}:oci", f"{name}:docker")


def test_flags_of_the_image_in_docker(shared: Project, tmp_path: Path, docker: DockerEngine) -> None:
    flags = [
        "--entrypoint",
        "python -c",
        "--cmd",
        "'import leaf, os; print(leaf.VERSION, os.getcwd(), os.access(\".\", os.W_OK))'",
    ]
    shared.pack("--out", tmp_path / "x.tar", "--tag", "demo.example.org/flags:1", "--expose", "8000", *flags)
    docker.run("load", "-i", tmp_path / "x.tar")
    found = json.loads(docker.run("image", "inspect", "demo.example.org/flags:1").stdout)[0]["Config"]
    assert found["ExposedPorts"] == {"8000/tcp": {}}
    assert found["StopSignal"] == "SIGTERM"
    assert docker.run("run", "--rm", "--network=none", "demo.example.org/flags:1").stdout == "1.0 /app True\n"
    docker.run("image", "rm", "demo.example.org/flags:1")


def test_the_schemas_of_the_image_specification(shared: Project, tmp_path: Path) -> None:
    need("OCI schemas")
    made = shared.pack("--out", f"{tmp_path}/layout/", "--expose", "80", "--label", "a=b")
    layout = tmp_path / "layout"

    def document(digest: str) -> object:
        return json.loads((layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_text())

    check("image-layout-schema", json.loads((layout / "oci-layout").read_text()))
    check("image-index-schema", json.loads((layout / "index.json").read_text()))
    manifest = document(made.digest)
    check("image-manifest-schema", manifest)
    assert isinstance(manifest, dict)
    check("config-schema", document(manifest["config"]["digest"]))
