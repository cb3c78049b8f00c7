"""Reading .debs: every layout that Debian has used, and everything that is damaged."""

from __future__ import annotations

import binascii
import gzip
import lzma
import random
import re
import tarfile
from collections.abc import Callable

import pytest
import zstandard

from px import bounds
from px.debian.archive import BadArchiveError, decompress, members, read_deb
from tests.support.bounded import memory, no_hang
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


def _pax(record: bytes) -> bytes:
    """A tar archive whose first member is an extended header with this content."""
    return make_tar([tar_member("pax", record, kind=tarfile.XHDTYPE), tar_member("./a", b"x")])


@pytest.mark.parametrize("record", [b"0 path=a\n", b"-5 path=a\n", b"1 path=a\n", b"99 path=a\n", b"x path=a\n", b"5"])
def test_pax_records_with_a_wrong_length(record: bytes) -> None:
    """Length 0 went on for ever."""
    with pytest.raises(BadArchiveError, match="extended header"), no_hang(10):
        list(members(_pax(record)))


def test_a_header_with_a_negative_size() -> None:
    header = bytearray(make_tar([tar_member("./a")])[:512])
    header[124:136] = b"-0000001000\0"
    with pytest.raises(BadArchiveError, match="damaged"):
        list(members(_summed(header)))
    # The walk that stops early does not check sums; it stayed at this header for ever.
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", lzma.compress(make_tar([])))]
    parts.append(("data.tar.xz", lzma.compress(bytes(header) + bytes(512))))
    deb = b"!<arch>\n" + b"".join(ar_member(*part) for part in parts)
    with pytest.raises(BadArchiveError, match="damaged"), no_hang(10):
        read_deb(deb, re.compile("never"))


def _summed(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + bytes(1024)


@pytest.mark.parametrize("compression", ["xz", "gz", "zst"])
def test_a_bomb(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE", 1 << 20)
    packers: dict[str, Callable[[bytes], bytes]] = {
        "xz": lambda b: lzma.compress(b, preset=0),
        "gz": gzip.compress,
        "zst": zstandard.compress,
    }
    bomb = packers[compression](bytes(64 << 20))
    with memory(40 << 20), pytest.raises(BadArchiveError, match="too large"):
        decompress(bomb, compression)


def test_a_bomb_that_is_read_up_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE", 1 << 20)
    data = lzma.compress(make_tar([tar_member("./a", bytes(64 << 20)), tar_member("./gcc", b"")]), preset=0)
    control = lzma.compress(make_tar([]))
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", control), ("data.tar.xz", data)]
    deb = b"!<arch>\n" + b"".join(ar_member(*part) for part in parts)
    with memory(40 << 20), pytest.raises(BadArchiveError, match="too large"):
        read_deb(deb, re.compile("gcc"))


def test_xz_that_asks_for_much_memory() -> None:
    """A header may ask for a dictionary of 1.5 GiB for three bytes of data."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0}]
    small = bytearray(lzma.compress(b"abc", check=lzma.CHECK_NONE, filters=filters))
    small[12 + 4] = 39  # the dictionary's size in the block header (xz-file-format, 5.3.1)
    small[12 + 8 : 12 + 12] = binascii.crc32(small[12 : 12 + 8]).to_bytes(4, "little")
    with memory(600 << 20), pytest.raises(BadArchiveError, match="damaged xz"):
        decompress(bytes(small), "xz")


def test_too_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MEMBERS", 3)
    with pytest.raises(BadArchiveError, match="too many"):
        list(members(make_tar([tar_member(f"./{n}") for n in range(4)])))


def test_streams_in_a_row_are_one() -> None:
    """Packers that use several cores make several; of zstd only the first was read."""
    assert decompress(zstandard.compress(b"a") + zstandard.compress(b"b"), "zst") == b"ab"
    assert decompress(lzma.compress(b"a") + lzma.compress(b"b"), "xz") == b"ab"
    assert decompress(gzip.compress(b"a") + gzip.compress(b"b"), "gz") == b"ab"
