"""Reading back: a plain file by its bare name, or an error that says why not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from px import foreign
from px.errors import PxError

LIMIT = 1000


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def read(directory: Path, name: str) -> object:
    return foreign.read(directory, name, LIMIT)


def copy(directory: Path, name: str) -> None:
    foreign.copy(directory, name, directory.parent / "copy", LIMIT)


def append(directory: Path, name: str) -> None:
    with foreign.appending(directory, name) as fd:
        os.write(fd, b"more\n")


WAYS = pytest.mark.parametrize("way", [read, copy, append])
Way = Callable[[Path, str], object]


def test_a_plain_file_is_read_and_copied(inside: Path) -> None:
    (inside / "wheel").write_bytes(b"x" * LIMIT)
    assert foreign.read(inside, "wheel", LIMIT) == b"x" * LIMIT
    foreign.copy(inside, "wheel", inside.parent / "copy", LIMIT)
    assert (inside.parent / "copy").read_bytes() == b"x" * LIMIT


def test_a_copy_replaces_nothing(inside: Path) -> None:
    (inside / "wheel").write_bytes(b"new")
    (inside.parent / "copy").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        foreign.copy(inside, "wheel", inside.parent / "copy", LIMIT)


def test_a_log_is_made_and_appended_to(inside: Path) -> None:
    append(inside, "log")
    append(inside, "log")
    assert (inside / "log").read_bytes() == b"more\nmore\n"


@WAYS
def test_links_are_not_followed(inside: Path, way: Way) -> None:
    victim = inside.parent / "victim"
    victim.write_text("mine\n")
    (inside / "name").symlink_to(victim)
    with pytest.raises(PxError, match="it is a link"):
        way(inside, "name")
    assert victim.read_text() == "mine\n"


@WAYS
def test_the_directory_is_no_link_either(inside: Path, way: Way) -> None:
    (inside / "name").write_text("x")
    link = inside.parent / "link"
    link.symlink_to(inside)
    with pytest.raises(PxError, match="it is a link"):
        way(link, "name")


@WAYS
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_only_regular_files(inside: Path, way: Way, make: Callable[[Path], None]) -> None:
    make(inside / "name")
    with pytest.raises(PxError, match="not a regular file"):
        way(inside, "name")


@WAYS
@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "../victim", "a/b", "a\0b", "x" * 256])
def test_only_bare_names(inside: Path, way: Way, name: str) -> None:
    with pytest.raises(PxError, match="bare name") as caught:
        way(inside, name)
    assert caught.value.code == "PX909"


@pytest.mark.parametrize("way", [read, copy])
def test_a_limit(inside: Path, way: Way) -> None:
    with (inside / "name").open("wb") as f:
        f.truncate(1 << 40)
    with pytest.raises(PxError, match=f"larger than {LIMIT} bytes"):
        way(inside, "name")


def test_what_is_not_there(inside: Path) -> None:
    with pytest.raises(PxError, match="No such file"):
        read(inside, "name")
    with pytest.raises(PxError, match="No such file"):
        read(inside / "nowhere", "name")


def test_nothing_is_appended_to_a_second_name(inside: Path) -> None:
    victim = inside / "pyproject.toml"
    victim.write_text("mine\n")
    os.link(victim, inside / "log")
    with pytest.raises(PxError, match="second name"):
        append(inside, "log")
    assert victim.read_text() == "mine\n"


def test_folders_in_folders(inside: Path) -> None:
    with foreign.folder(inside, "a", make=True) as a, foreign.folder(a, "b", make=True) as b:
        with foreign.appending(b, "log") as fd:
            os.write(fd, b"x")
        assert foreign.read(b, "log", LIMIT) == b"x"
        with pytest.raises(PxError, match="a/b/other"):
            foreign.read(b, "other", LIMIT)
    assert (inside / "a" / "b" / "log").is_file()


@pytest.mark.parametrize("make", [True, False])
def test_a_folder_is_no_link(inside: Path, make: bool) -> None:
    (inside / "a").symlink_to("/")
    with pytest.raises(PxError, match="it is a link"), foreign.folder(inside, "a", make=make):
        pass


def test_a_tree_is_removed_however_deep_and_whatever_its_modes(inside: Path) -> None:
    kept = inside.parent / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (inside / "link").symlink_to(kept)
    (inside / "closed/inner").mkdir(parents=True)
    (inside / "closed/inner/file").write_text("x")
    (inside / "closed").chmod(0)
    at = os.open(inside, os.O_RDONLY)
    for _ in range(3000):  # a path of 12000 bytes, which no call takes at once
        os.mkdir("deep", dir_fd=at)
        at, above = os.open("deep", os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.symlink(kept, "link", dir_fd=at)
    os.close(at)
    foreign.remove(inside)
    assert not inside.exists()
    assert (kept / "file").read_text() == "x"
