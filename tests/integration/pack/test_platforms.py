"""Images for another architecture, made without emulation: what is in them, and that they run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from px.home import Home
from px.platforms import host_architecture
from tests.integration.pack.projects import Project, make_project, run
from tests.support.needs import need

OTHER = "arm64" if host_architecture() == "amd64" else "amd64"
MACHINE = {"arm64": 183, "amd64": 62}[OTHER]
QEMU = {"arm64": "qemu-aarch64-static", "amd64": "qemu-x86_64-static"}[OTHER]
WHEELS = """\
[project]
name = "demo-app"
version = "1.2.3"
requires-python = ">=3.11"
dependencies = {}

[project.scripts]
demo-app = "demo_app:main"

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""
NUMBERS = """\
import io, sys
import numpy
from PIL import Image


def main() -> int:
    picture = Image.fromarray(numpy.arange(64, dtype="uint8").reshape(8, 8))
    out = io.BytesIO()
    picture.save(out, "PNG")
    print(out.getvalue()[:4], round(float(numpy.linalg.det(numpy.eye(3) * 2))), sys.implementation._multiarch)
    return 3
"""


def elf_machines(root: Path) -> dict[int, int]:
    """How many ELF files of each machine lie below ``root``."""
    found: dict[int, int] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            if path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as f:
                head = f.read(20)
            if head[:4] == b"\x7fELF":
                machine = int.from_bytes(head[18:20], "little")
                found[machine] = found.get(machine, 0) + 1
    return found


def unpacked(layout: Path, tag: str, bundle: Path) -> Path:
    need("umoci")
    run("umoci", "unpack", "--rootless", "--image", f"{layout}:{tag}", bundle)
    return bundle / "rootfs"


def emulated(root: Path, *arguments: str) -> tuple[int, str]:
    """Run python of the unpacked image; without the kernel's help qemu finds the image's files by its prefix."""
    need("qemu")
    done = run(QEMU, "-L", root, root / "usr/bin/python3.11", *arguments, check=False)
    return done.returncode, done.stdout or done.stderr


@pytest.mark.slow
def test_another_architecture(shared: Project, tmp_path: Path) -> None:
    made = shared.pack("--platform", f"linux/{OTHER}", "--out", f"{tmp_path}/layout/")
    root = unpacked(tmp_path / "layout", "1.2.3", tmp_path / "bundle")
    found = elf_machines(root)
    assert set(found) == {MACHINE}
    assert found[MACHINE] > 100
    code, out = emulated(root, "-c", "import ssl, sqlite3, platform; print(platform.machine())")
    assert (code, out) == (0, {"arm64": "aarch64", "amd64": "x86_64"}[OTHER] + "\n")
    assert shared.verify(tmp_path / "layout").returncode == 0
    assert made.digest != shared.pack().digest


def test_both_architectures(shared: Project, tmp_path: Path) -> None:
    flags = ("--platform", "linux/amd64,linux/arm64", "--out", f"{tmp_path}/layout/", "--sbom", tmp_path / "bill.json")
    made = shared.pack(*flags)
    lines = shared.px("pack", "image", *flags).stdout.splitlines()
    for number, architecture in enumerate(("amd64", "arm64")):
        assert f"  sbom:   {tmp_path}/bill.{architecture}.json" in lines
        at = lines.index(f"Derived from (linux/{architecture}):")
        assert lines[at + 3] == f"  sbx:  sbx_id={made.details['images'][number]['sbx_id']}"
    index = json.loads((tmp_path / "layout/index.json").read_text())
    (entry,) = index["manifests"]
    assert entry["digest"] == made.digest
    listed = json.loads((tmp_path / "layout/blobs/sha256" / made.digest.removeprefix("sha256:")).read_text())
    assert [m["platform"]["architecture"] for m in listed["manifests"]] == ["amd64", "arm64"]
    assert [m["digest"] for m in listed["manifests"]] == [i["digest"] for i in made.details["images"]]
    one = shared.pack("--platform", "linux/arm64")
    assert one.digest == listed["manifests"][1]["digest"], "alone or together, it is the same image"
    for architecture in ("amd64", "arm64"):
        bill = json.loads((tmp_path / f"bill.{architecture}.json").read_text())
        (libc,) = [c["purl"] for c in bill["components"] if c["name"] == "libc6"]
        assert f"arch={architecture}&" in libc
    need("skopeo")
    run("skopeo", "copy", "--all", f"oci:{tmp_path}/layout:1.2.3", f"oci:{tmp_path}/copy:1")
    done = shared.verify(tmp_path / "copy")
    assert done.returncode == 0, done.stdout


@pytest.mark.network
def test_a_package_without_a_wheel_is_named(tmp_path: Path, warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    project = make_project(tmp_path / "app", WHEELS.format('["docopt==0.6.2"]'))
    project.sync()
    said = project.refused("--platform", f"linux/{OTHER}")
    assert said.startswith("PX903")
    assert "docopt 0.6.2" in said
    assert OTHER in said


@pytest.mark.slow
@pytest.mark.network
def test_wheels_with_extensions(tmp_path: Path, warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    project = make_project(tmp_path / "app", WHEELS.format('["numpy", "pillow"]'), NUMBERS)
    project.sync()
    both = "linux/amd64,linux/arm64"
    made = project.pack("--platform", both)
    names = {i["platform"]: [layer["what"] for layer in i["layers"]] for i in made.details["images"]}
    assert "px: package numpy" in names["linux/arm64"], "more than 30 MB: a layer of its own"
    project.pack("--platform", f"linux/{OTHER}", "--out", f"{tmp_path}/layout/")
    root = unpacked(tmp_path / "layout", "1.2.3", tmp_path / "bundle")
    assert set(elf_machines(root)) == {MACHINE}
    site = root / "opt/px/env/lib/python3.11/site-packages"
    assert elf_machines(site / "numpy")[MACHINE] > 10
    code, out = emulated(
        root,
        "-c",
        f"import sys; sys.path[:0] = ['{site}', '{root}/app/src']; import demo_app; sys.exit(demo_app.main())",
    )
    triplet = {"arm64": "aarch64", "amd64": "x86_64"}[OTHER] + "-linux-gnu"
    assert (code, out) == (3, f"b'\\x89PNG' 8 {triplet}\n")
    assert project.verify(tmp_path / "layout").returncode == 0
