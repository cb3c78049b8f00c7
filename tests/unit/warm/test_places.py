"""What lies over a working tree, and which programs of PATH px runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from px.engines.options import check_volumes
from px.errors import PxError
from px.warm import places
from px.warm.arguments import Descriptors, command
from px.warm.spec import APP, Mount, RunSpec


def arranged(tree: Mount, *volumes: Mount, home: Path, git_write: bool = False) -> tuple[list[str], tuple[str, ...]]:
    """Targets of the mounts that px added, writable ones with a plus, and what is hidden."""
    mounts, hidden = places.arrange(tree, volumes, str(home), git_write=git_write)
    return [m.target + ("" if m.read_only else "+") for m in mounts if m.own], hidden


def test_the_repository_and_the_state_are_read_only(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    tree, home = Mount(root, APP), tmp_path / "home"
    assert arranged(tree, home=home) == (["/app/.git", "/app/.px"], ())
    assert arranged(tree, home=home, git_write=True) == (["/app/.px"], ())
    assert arranged(Mount(root, APP, read_only=True), home=home) == ([], ())
    assert arranged(tree, Mount(tmp_path / "other", "/data"), home=home) == (["/app/.git", "/app/.px"], ())


@pytest.mark.parametrize("name", ["home", "a/b/home", ".px", ".px/home"])
def test_a_home_in_the_tree_is_hidden_and_cannot_be_moved(tmp_path: Path, name: str) -> None:
    found, hidden = arranged(Mount(tmp_path, APP), home=tmp_path / name)
    assert hidden == (f"/app/{name}",)
    above = [f"/app/{parent}+" for parent in Path(name).parents if str(parent) not in (".", ".px")]
    assert sorted(found) == sorted({"/app/.git", *above} | ({"/app/.px"} if name != ".px" else set()))


def test_a_home_is_hidden_by_its_real_place(tmp_path: Path) -> None:
    (tmp_path / "project/home").mkdir(parents=True)
    (tmp_path / "link").symlink_to("project/home")
    (tmp_path / "way").symlink_to("project")
    for tree in ("project", "way"):
        assert arranged(Mount(tmp_path / tree, APP), home=tmp_path / "link")[1] == ("/app/home",)
    found = arranged(Mount(tmp_path / "x", APP), Mount(tmp_path, "/data", read_only=True), home=tmp_path / "link")
    assert found == (["/app/.git", "/app/.px"], ("/data/project/home",))


@pytest.mark.parametrize("name", ["home", "home/store", "home/any/project"])
def test_nothing_in_the_home_is_mounted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(PxError, match="PX012"):
        arranged(Mount(tmp_path / name, APP), home=tmp_path / "home")
    with pytest.raises(PxError, match="PX040"):
        check_volumes([Mount(tmp_path / name, "/data")], str(tmp_path), str(tmp_path / "home"))


def test_px_itself_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "tools/venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "tools/venv"))
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "vendor/site-packages"), str(tmp_path / "src")])
    found, _ = arranged(Mount(tmp_path, APP), home=Path("/elsewhere"))
    assert found == [
        "/app/.git",
        "/app/.px",
        "/app/tools+",
        "/app/tools/venv",
        "/app/vendor+",
        "/app/vendor/site-packages",
    ]
    found, _ = arranged(Mount("/elsewhere", APP), Mount(tmp_path, "/data"), home=Path("/else"))
    assert "/data/tools/venv" in found


def test_links_out_of_the_project_are_no_volumes(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (tmp_path / "other/data").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path / "other")
    (root / "in").symlink_to("data")
    (tmp_path / "way").symlink_to("project")
    (tmp_path / "mine").symlink_to("other")
    home = str(tmp_path / "home")
    fine = [root / "data", root / "in", tmp_path / "way/data", tmp_path / "mine", tmp_path / "other"]
    check_volumes([Mount(source, "/data") for source in fine], str(root), home)
    for source in (root / "out", root / "out/data", tmp_path / "way/out/data"):
        with pytest.raises(PxError, match="a link in the project leads to"):
            check_volumes([Mount(source, "/data")], str(root), home)


@pytest.mark.parametrize("kind", ["directory", "file", "nothing", "link", "behind a link"])
def test_only_what_is_there_and_no_link_is_mounted(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "project/.git"
    place.parent.mkdir()
    if kind == "directory":
        place.mkdir()
    elif kind == "file":
        place.write_text("gitdir: ../elsewhere\n")
    elif kind == "link":
        place.symlink_to("/etc")
    elif kind == "behind a link":
        (tmp_path / "link").symlink_to("/etc")
        place = tmp_path / "link/passwd"
    fds = Descriptors()
    spec = RunSpec((tmp_path,), ("true",), {}, mounts=(Mount(str(place), "/app/.git", True, own=True),))
    words = command(spec, fds, channel=99)
    options = os.pread(int(words[1]), 100_000, 0).split(b"\0")
    fds.close()
    assert (b"--ro-bind-fd" in options) == (kind in ("directory", "file"))
    assert b"/app/.git" in options or kind not in ("directory", "file")


# --- programs ----------------------------------------------------------------------------------------------------


def tool(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "a-tool"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_programs_of_a_project_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, other, fine = tmp_path / "here", tmp_path / "other", tmp_path / "fine"
    tool(here / ".venv/bin")
    tool(other / ".venv/bin")
    (other / "pyproject.toml").write_text("")
    (tmp_path / "link").symlink_to("other/.venv/bin")
    monkeypatch.chdir(here)
    path = ["", ".", "bin", str(here / ".venv/bin"), str(other / ".venv/bin"), str(tmp_path / "link"), str(fine)]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    assert places.program("a-tool") is None
    found = tool(fine)
    assert places.program("a-tool") == str(found)
    assert places.programs_path() == str(fine)
