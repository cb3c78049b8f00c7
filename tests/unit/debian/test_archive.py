"""Reading .debs: every layout that Debian has used, and everything that is damaged."""

from __future__ import annotations

import lzma
import random
import re
import tarfile

import pytest
import zstandard

from px.debian.archive import BadArchiveError, decompress, members, read_deb
from tests.support.debian import ar_member, make_deb, make_tar, tar_member

LONG = "usr/share/" + "directory/" * 20 + "file"


@pytest.mark.parametrize("compression", ["", ".gz", ".xz"])
def test_compressions(compression: str) -> None:
    deb = read_deb(make_deb("a", [tar_member("./usr/bin/a", b"hello", mode=0o755)], compression=compression))
    assert deb.control["control"].startswith(b"Package: a\n")
    (found,) = members(deb.data)
    assert (found.path, found.kind, found.mode, bytes(found.content)) == ("usr/bin/a", "file", 0o755, b"hello")


def test_zstd() -> None:
    assert decompress(zstandard.compress(b"content"), "zst") == b"content"
    with pytest.raises(BadArchiveError, match="damaged zst"):
        decompress(b"nonsense", "zst")


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_tar_formats(fmt: int) -> None:
    tar = make_tar(
        [
            tar_member("./usr/", kind=tarfile.DIRTYPE, mode=0o755),
            tar_member("./usr/file", b"x" * 513),
            tar_member("./usr/link", kind=tarfile.SYMTYPE, to="file"),
            tar_member("./usr/hard", kind=tarfile.LNKTYPE, to="./usr/file"),
        ],
        fmt=fmt,
    )
    found = [(m.path, m.kind, m.target, len(m.content)) for m in members(tar)]
    assert found == [
        ("usr", "directory", "", 0),
        ("usr/file", "file", "", 513),
        ("usr/link", "symlink", "file", 0),
        ("usr/hard", "hardlink", "./usr/file", 0),
    ]


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_unusual_names(fmt: int) -> None:
    name = LONG + "-é"
    tar = make_tar(
        [tar_member("./" + name, b"1"), tar_member("l", kind=tarfile.SYMTYPE, to=name), tar_member("b")], fmt=fmt
    )
    assert [(m.path, m.target) for m in members(tar)] == [(name, ""), ("l", name), ("b", "")]


def test_device_nodes_and_unknown_kinds_are_refused() -> None:
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        with pytest.raises(BadArchiveError, match=r"device|pipe"):
            list(members(make_tar([tar_member("dev/x", kind=kind)])))
    with pytest.raises(BadArchiveError, match="unknown kind"):
        list(members(make_tar([tar_member("x", kind=b"Z")])))


def test_every_truncation_of_a_deb_is_noticed() -> None:
    content = make_deb("a", [tar_member("./a", b"x" * 3000)], compression="")
    end = len(content)
    for cut in (0, 5, 30, 70, 200, end // 2, end - 1500):
        with pytest.raises(BadArchiveError):
            list(members(read_deb(content[:cut]).data))


def test_damage() -> None:
    good = make_tar([tar_member("a", b"1")])
    with pytest.raises(BadArchiveError, match="damaged tar header"):
        list(members(b"b" + good[1:]))
    with pytest.raises(BadArchiveError, match="not an ar archive"):
        read_deb(b"PK\x03\x04")
    with pytest.raises(BadArchiveError, match="format 2"):
        read_deb(b"!<arch>\n" + ar_member("debian-binary", b"3.0\n"))
    with pytest.raises(BadArchiveError, match=r"no data\.tar"):
        read_deb(b"!<arch>\n" + ar_member("debian-binary", b"2.0\n") + ar_member("control.tar", good))
    with pytest.raises(BadArchiveError, match="damaged xz"):
        read_deb(b"!<arch>\n" + ar_member("debian-binary", b"2.0\n") + ar_member("control.tar.xz", b"junk"))
    with pytest.raises(BadArchiveError, match=r"unknown compression \.lz9"):
        read_deb(b"!<arch>\n" + ar_member("debian-binary", b"2.0\n") + ar_member("control.tar.lz9", b"junk"))


def test_reading_stops_before_the_first_file_that_is_not_needed() -> None:
    noise = random.Random(1).randbytes(3 << 20)
    files = [tar_member("./usr/", kind=tarfile.DIRTYPE), tar_member("./usr/a", noise), tar_member("./usr/b", b"b")]
    content = make_deb("a", [*files, tar_member("./usr/c", b"c")], compression=".xz")
    paths = {
        stop: [m.path for m in members(read_deb(content, re.compile(stop)).data)]
        for stop in ("usr/a", "usr/[bc]", "usr", "usr/x")
    }
    assert paths == {
        "usr/a": ["usr"],
        "usr/[bc]": ["usr", "usr/a"],
        "usr": [],
        "usr/x": ["usr", "usr/a", "usr/b", "usr/c"],
    }
    kept = next(m for m in members(read_deb(content, re.compile("usr/b")).data) if m.path == "usr/a")
    assert bytes(kept.content) == noise


def test_reading_with_a_stop_refuses_what_is_damaged() -> None:
    data = lzma.compress(make_tar([tar_member("./usr/a", b"x" * 100_000), tar_member("./usr/b")]), preset=0)
    for damaged, problem in ((data[: len(data) // 2], "too early"), (data[:20] + b"nonsense" + data[28:], "damaged")):
        parts = [("debian-binary", b"2.0\n"), ("control.tar", make_tar([])), ("data.tar.xz", damaged)]
        content = b"!<arch>\n" + b"".join(ar_member(name, part) for name, part in parts)
        with pytest.raises(BadArchiveError, match=problem):
            read_deb(content, re.compile("usr/b"))
