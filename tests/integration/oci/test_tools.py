"""Other people's tools take our images: skopeo, umoci, Docker, containerd, podman, and the OCI schemas."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft4Validator, ValidationError
from referencing import Registry as Schemas
from referencing.jsonschema import DRAFT4

from px.oci.image import compare, read_images
from px.oci.layout import write_archive, write_layout
from px.oci.registry.referrers import Attachment, attachment_manifest
from px.oci.sources import source_of
from tests.support.dockerd import DockerEngine, running_docker
from tests.support.needs import OCI_SCHEMAS, lacks, need
from tests.unit.oci.images import AMD64, ARM64, Files, make_image, make_release, noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.home import Home


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    need("skopeo", "umoci", "busybox")


def base() -> Files:
    """A root file system that runs: one static program, larger than a compressed block."""
    return Files(
        {
            "bin/busybox": Path("/bin/busybox").read_bytes(),
            "bin/aaa": "=bin/busybox",
            "bin/sh": "->busybox",
            "etc/passwd": b"root:x:0:0::/:/bin/sh\napp:x:1000:1000::/app:/bin/sh\n",
            "usr/share/data": noise(3_500_000),
            "proc": "",
            "sys": "",
            "dev": "",
            "tmp": "",
        },
        {"bin/busybox": 0o755, "tmp": 0o1777},
    )


APP = Files(
    {
        "run.sh": b"#!/bin/sh\nbusybox id -u\nbusybox cat /app/$(busybox printf 'n\\303\\244me')\nexit 7\n",
        "näme": b"hello\n",
        "/".join(["long" * 15] * 4) + "/file": b"deep",
    },
    {"run.sh": 0o755},
)


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("platforms", [(AMD64,), (AMD64, ARM64)], ids=["one", "two"])
def test_skopeo(compression: str, platforms: tuple[Any, ...], home: Home, tmp_path: Path) -> None:
    made = [make_image(home, base(), APP, platform=platform, compression=compression) for platform in platforms]
    blobs, what = made[0][0], make_release(made[0][0], *(image for _, image in made))
    write_archive(blobs, what, tmp_path / "x.tar")
    write_layout(blobs, what, tmp_path / "layout")
    for source in (f"oci-archive:{tmp_path}/x.tar", f"oci:{tmp_path}/layout:1.0"):
        assert json.loads(run("skopeo", "inspect", source))["Digest"] == what.digest
        copy = tmp_path / "copy"
        run("skopeo", "copy", "--all", source, f"oci:{copy}:1")
        names = [p.name for p in (copy / "blobs" / "sha256").iterdir()]
        assert sorted(names) == sorted(d.removeprefix("sha256:") for d in what.blob_digests())
    if len(platforms) == 1:
        (ours,), (theirs,) = read_images(source_of(str(tmp_path / "layout"))), read_images(source_of(str(copy)))
        assert compare(ours, theirs) == []


def test_what_skopeo_repacks_for_docker_holds_the_same_files(home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, base(), APP)
    write_archive(blobs, make_release(blobs, image), tmp_path / "x.tar")
    run("skopeo", "copy", f"oci-archive:{tmp_path}/x.tar", f"docker-archive:{tmp_path}/docker.tar:a.org/x:1")
    (theirs,) = read_images(source_of(str(tmp_path / "docker.tar")))
    assert [layer.diff_id for layer in theirs.layers] == [use.blob.diff_id for use in image.layers]


def test_umoci_unpacks(home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, base(), APP)
    write_layout(blobs, make_release(blobs, image), tmp_path / "layout")
    run("umoci", "unpack", "--rootless", "--image", tmp_path / "layout:1.0", tmp_path / "bundle")
    root = tmp_path / "bundle" / "rootfs"
    assert (root / "bin" / "aaa").samefile(root / "bin" / "busybox")
    assert (root / "app" / "näme").read_text() == "hello\n"
    assert (root / "app" / "/".join(["long" * 15] * 4) / "file").read_text() == "deep"
    assert (root / "usr" / "share" / "data").read_bytes() == noise(3_500_000)
    config = json.loads((tmp_path / "bundle" / "config.json").read_text())
    assert config["process"]["args"] == ["/app/run.sh"]
    assert config["process"]["cwd"] == "/app"


@pytest.fixture(scope="module")
def docker() -> Iterator[DockerEngine]:
    with running_docker("vfs") as engine:
        yield engine


@pytest.mark.parametrize("kind", ["oci", "docker", "two platforms"])
def test_docker_loads_and_runs(kind: str, docker: DockerEngine, home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, base(), APP, format="docker" if kind == "docker" else "oci")
    more = [make_image(home, base(), APP, platform=ARM64)[1]] if kind == "two platforms" else []
    write_archive(
        blobs, make_release(blobs, image, *more, names=("px.local/demo:1.0", "a.org/b:2")), tmp_path / "x.tar"
    )
    docker.run("load", "-i", tmp_path / "x.tar")
    found = docker.run("image", "inspect", "--format", "{{.Id}}", "px.local/demo:1.0", "a.org/b:2").stdout.split()
    assert found == [image.config.digest] * 2
    done = docker.run("run", "--rm", "--network=none", "px.local/demo:1.0", check=False)
    assert (done.returncode, done.stdout) == (7, "1000\nhello\n"), done.stderr
    docker.run("image", "rm", "px.local/demo:1.0", "a.org/b:2")


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_containerd_imports(compression: str, docker: DockerEngine, home: Home, tmp_path: Path) -> None:
    blobs, image = make_image(home, base(), APP, compression=compression)
    write_archive(blobs, make_release(blobs, image), tmp_path / "x.tar")
    ctr = ("ctr", "--address", docker.containerd, "--namespace", f"test-{compression}")
    run(*ctr, "image", "import", "--snapshotter", "native", tmp_path / "x.tar")
    listed = run(*ctr, "image", "ls")
    assert "px.local/demo:1.0" in listed
    assert image.digest in listed
    run(*ctr, "image", "rm", "px.local/demo:1.0")


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_podman_loads(compression: str, home: Home, tmp_path: Path) -> None:
    need("podman")
    blobs, image = make_image(home, base(), APP, compression=compression)
    write_archive(blobs, make_release(blobs, image), tmp_path / "x.tar")
    with tempfile.TemporaryDirectory(prefix="px-pod-", ignore_cleanup_errors=True) as short:  # podman wants < 50
        _load_with_podman(Path(short), tmp_path / "x.tar", image.config.digest)


def _load_with_podman(folder: Path, archive: Path, expected: str) -> None:
    podman = ("podman", "--root", folder / "root", "--runroot", folder / "run", "--storage-driver", "vfs")
    done = subprocess.run([*map(str, podman), "load", "-q", "-i", archive], capture_output=True, check=False)
    if done.returncode != 0:
        lacks("podman", done.stderr.decode()[-300:])
    assert run(*podman, "image", "inspect", "--format", "{{.Id}}", "px.local/demo:1.0").strip() == expected[7:]
    run(*podman, "rmi", "px.local/demo:1.0")


def test_the_schemas_of_the_image_specification(home: Home, tmp_path: Path) -> None:
    need("OCI schemas")
    blobs, amd64 = make_image(home, base(), APP, platform=AMD64)
    _, arm64 = make_image(home, base(), APP, platform=ARM64)
    what = make_release(blobs, amd64, arm64)
    write_layout(blobs, what, tmp_path / "layout")
    check("image-layout-schema", json.loads((tmp_path / "layout" / "oci-layout").read_text()))
    check("image-index-schema", json.loads((tmp_path / "layout" / "index.json").read_text()))
    check("image-index-schema", json.loads(blobs.read(what.digest)))
    for image in what.images:
        check("image-manifest-schema", json.loads(blobs.read(image.digest)))
        check("config-schema", json.loads(blobs.read(image.config.digest)))
    attached = attachment_manifest(amd64.manifest, Attachment("application/vnd.cyclonedx+json", b"{}", {"a": "b"}))
    check("image-manifest-schema", json.loads(attached))
    with pytest.raises(ValidationError):
        check("image-manifest-schema", {"schemaVersion": 2})


def check(name: str, document: object) -> None:
    """Validate against the specification's own schema; its files refer to each other by name."""
    found = [
        (f"http://schemas.invalid/{path.name}", DRAFT4.create_resource(_schema(path)))
        for path in OCI_SCHEMAS.glob("*.json")
    ]
    schemas: Schemas[Any] = Schemas().with_resources(found)
    Draft4Validator({"$ref": f"http://schemas.invalid/{name}.json"}, registry=schemas).validate(document)


def _schema(path: Path) -> Any:
    return _without_ids(json.loads(path.read_text()))


def _without_ids(value: Any) -> Any:
    """The ids name addresses that are not where the references point."""
    if isinstance(value, dict):
        return {k: _without_ids(v) for k, v in value.items() if not (k == "id" and isinstance(v, str))}
    return [_without_ids(v) for v in value] if isinstance(value, list) else value
