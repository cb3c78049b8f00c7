"""Layers: which of them a change touches, which of them images share, and what ``px pack verify`` says about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from px.oci.image import layer_files
from tests.integration.pack.projects import Project, image_in, make_project
from tests.support.index import serving
from tests.support.wheels import WheelSpec


def test_a_code_edit_changes_the_app_layer_only(project: Project) -> None:
    before = project.pack().layers()
    project.replace("src/demo_app/__init__.py", "return 3", "return 4")
    project.commit()
    after = project.pack().layers()
    assert {what for what in after if before[what] != after[what]} == {"app"}


def test_a_capability_changes_the_system_layer_only(project: Project) -> None:
    before = project.pack()
    project.px("sandbox", "add", "xml")
    project.commit()
    project.sync()
    after = project.pack()
    assert set(after.layers()) == set(before.layers()) | {"system"}
    # The manifest names the capability, and is part of the app.
    kept = {what for what, digest in before.layers().items() if after.layers()[what] == digest}
    assert kept == {"base debian-12", "env"}
    images = [made.details["images"][0] for made in (before, after)]
    assert images[1]["capabilities"] == ["xml"]
    assert images[0]["sbx_id"] != images[1]["sbx_id"]
    assert images[0]["profile_oid"] == images[1]["profile_oid"]


def test_a_package_more_changes_the_env_and_the_app(project: Project) -> None:
    before = project.pack().layers()
    project.replace("pyproject.toml", '["hello"]', '["hello", "ns-two"]')
    project.lock()
    project.commit()
    project.sync()
    after = project.pack().layers()
    assert {what for what in after if before[what] != after[what]} == {"env", "app"}


def test_projects_share_a_base_and_heavy_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = os.urandom(1 << 20) * 31  # more than 30 MB, and small to download
    wheels = tmp_path / "wheels"
    WheelSpec("heavy", files={"heavy/data.bin": noise}).write(wheels)
    WheelSpec("light").write(wheels)
    manifest = '[project]\nname = "{}"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = {}\n'
    with serving(wheels) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        found = []
        for name, dependencies in (("one", '["heavy"]'), ("two", '["heavy", "light"]')):
            project = make_project(tmp_path / name, manifest.format(name, dependencies))
            project.sync()
            found.append(project.pack("--out", tmp_path / f"{name}.tar").layers())
    one, two = found
    assert list(one) == ["base debian-12", "package heavy", "env", "app"]
    assert {what for what in one if one[what] == two[what]} == {"base debian-12", "package heavy"}
    files = layer_files(image_in(tmp_path / "two.tar").layers[1])
    assert files["opt/px/env/lib/python3.11/site-packages/heavy/data.bin"].size == len(noise)


def test_verify_says_the_same(shared: Project, tmp_path: Path) -> None:
    for flags in (["--out", "x.tar"], ["--out", "layout/"], ["--out", "z.tar", "--compression", "zstd"],
                  ["--out", "d.tar", "--format", "docker"]):  # fmt: skip
        out = f"{tmp_path}/{flags[1]}"
        shared.pack("--out", out, *flags[2:])
        done = shared.verify(out)
        assert (done.returncode, done.stdout) == (0, f"{out}: the same, layer by layer\n")
    shared.pack("--tag", "px.local/mine")
    assert shared.verify("px.local/mine").returncode == 0, "the same tag is meant as where it was packed"


def test_verify_shows_a_readable_difference(project: Project, tmp_path: Path) -> None:
    archive, name = tmp_path / "x.tar", "px.local/different:1"  # no other test's: all of them share one px home
    project.pack("--out", archive, "--tag", name)
    first = project.git("rev-parse", "HEAD").strip()
    project.replace("src/demo_app/__init__.py", "return 3", "return 42")
    project.write("new.txt", "new\n")
    (project.root / ".gitignore").unlink()
    done = project.verify(archive)
    assert done.returncode == 1
    assert "3 uncommitted changes" in done.stderr
    assert project.verify(name).stdout == done.stdout, "it is kept under its name too"
    lines = done.stdout.splitlines()
    assert lines[0] == "layer 3 (px: app):"
    assert any(line.startswith("  ~ app/src/demo_app/__init__.py: size ") and "sha256" in line for line in lines)
    assert any(line.startswith("  + app/new.txt (file, mode 0644") for line in lines)
    assert any(line.startswith("  - app/.gitignore (file") for line in lines)
    assert not any("layer 1" in line or "layer 2" in line for line in lines)
    project.commit()
    done = project.verify(archive)
    assert done.returncode == 1
    assert f"the image was made from commit {first[:12]}" in done.stderr
    project.git("checkout", "-q", first)
    assert project.verify(archive).returncode == 0


def test_verify_of_what_is_no_image(shared: Project, tmp_path: Path) -> None:
    (tmp_path / "text.tar").write_text("not an archive")
    (tmp_path / "empty").mkdir()
    for path, said in (
        ("px.local/other:1", "no image of this name was packed on this machine"),
        ("nowhere.tar", "there is no such file or directory"),
        ("./nowhere", "there is no such file or directory"),
        (f"{tmp_path}/nowhere/", "there is no such file or directory"),
        (f"{tmp_path}/text.tar", "is not an image that px can read"),
        (f"{tmp_path}/empty", "is not an image that px can read"),
    ):
        done = shared.verify(path)
        assert done.returncode == 125
        assert done.stderr.startswith(f"PX923  {path}"), done.stderr
        assert said in done.stderr


def test_verify_finds_damage(shared: Project, tmp_path: Path) -> None:
    shared.pack("--out", f"{tmp_path}/layout/")
    image = image_in(tmp_path / "layout")
    blob = tmp_path / "layout/blobs/sha256" / image.layers[-1].digest.removeprefix("sha256:")
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)
    done = shared.verify(tmp_path / "layout")
    assert done.returncode == 125
    assert "a layer is damaged" in done.stderr
