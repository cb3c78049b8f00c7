"""A reader for .deb files (deb(5)): an ``ar`` archive that holds two tar archives.

It is written by hand, because every first build of a base waits for it and Python's tarfile takes forty times longer.
It works in memory and does not touch the file system.  It does not check paths and links: :mod:`px.debian.unpack` does.
"""

from __future__ import annotations

import lzma
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from px import bounds

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from pathlib import Path

    from px.store.tree import Entry

BLOCK = 512
# How much `_unpacked_until` decompresses at a time: at most this much more than it needs.
_AHEAD = 1 << 20
_PIECE = 1 << 10
_STREAMS = 10_000
FILE, HARDLINK, SYMLINK, DIRECTORY = "file", "hardlink", "symlink", "directory"
# tar's type flags.  Old archives have NUL for a file, and POSIX says to read 7 (a contiguous file) as a file.
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE, b"1": HARDLINK, b"2": SYMLINK, b"5": DIRECTORY}
_DEVICES = {b"3": "a character device", b"4": "a block device", b"6": "a named pipe"}


class BadArchiveError(Exception):
    """An archive is damaged, or holds something that no package may hold."""


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a tar archive.  ``content`` is a view into the archive, not a copy."""

    path: str
    kind: str
    mode: int
    target: str
    content: memoryview
    kept: tuple[Path, Entry] | None = None
    """A file of another layer's tree with this content; then ``content`` is empty."""


@dataclass(frozen=True, slots=True)
class Deb:
    """The two parts of a .deb: its control files, and the files that it installs."""

    control: dict[str, bytes]
    data: bytes
    """The uncompressed data.tar."""


def read_deb(content: bytes, stop: re.Pattern[str] | None = None) -> Deb:
    """Decompress a .deb and read its control files.

    With ``stop``, the data ends before the first file whose path matches.  What comes after is not decompressed, which
    saves most of the time for a package like gcc.
    """
    parts = dict(_ar_members(content))
    # deb(5): this member has the format's version, and readers accept every minor version.
    if parts.get("debian-binary", b"")[:2] != b"2.":
        raise BadArchiveError("not a .deb of format 2")
    control = {}
    for member in members(_unpacked(parts, "control.tar")):
        if member.kind == FILE:
            control[member.path] = bytes(member.content)
    # Only for xz, which all of Debian's packages use.  For others `stop` has no effect on the data.
    if stop is not None and "data.tar.xz" in parts:
        return Deb(control, _unpacked_until(parts["data.tar.xz"], stop))
    return Deb(control, _unpacked(parts, "data.tar"))


def _ar_members(content: bytes) -> Iterator[tuple[str, memoryview]]:
    if content[:8] != b"!<arch>\n":
        raise BadArchiveError("not an ar archive")
    view, at = memoryview(content), 8
    # A header of 60 bytes: name in 0-15, size in 48-57, then "`" and a newline.  GNU ar ends names with a slash.
    while at + 60 <= len(content):
        header = content[at : at + 60]
        try:
            size = int(header[48:58])
        except ValueError:
            raise BadArchiveError("a damaged ar header") from None
        if header[58:] != b"`\n" or size < 0 or at + 60 + size > len(content):
            raise BadArchiveError("a damaged or truncated ar archive")
        yield header[:16].decode("ascii", "replace").rstrip(" /"), view[at + 60 : at + 60 + size]
        at += 60 + size + size % 2  # members start at even offsets


def _unpacked(parts: dict[str, memoryview], stem: str) -> bytes:
    for name, content in parts.items():
        if name == stem:
            return bytes(content)
        if name.startswith(stem + "."):
            return decompress(content, name.rpartition(".")[2])
    raise BadArchiveError(f"it has no {stem}")


def decompress(content: bytes | memoryview, compression: str, most: int = bounds.IN_MEMORY) -> bytes:
    """Decompress xz, gzip or zstd, all streams of it, up to what :mod:`px.bounds` allows for its size.

    lzma and zlib release the GIL, so threads can do this in parallel.
    """
    if compression not in ("xz", "gz", "zst"):
        raise BadArchiveError(f"unknown compression .{compression}")
    found, rest, left = [], content, bounds.unpacked(len(content), most)
    while rest:
        piece, rest = stream(rest, compression, left)
        left -= len(piece)
        found.append(piece)
        # A stream of nothing costs 20 bytes: there may be very many.
        if len(found) > _STREAMS:
            raise BadArchiveError("it has too many streams")
    return found[0] if len(found) == 1 else b"".join(found)


def stream(content: bytes | memoryview, compression: str, limit: int) -> tuple[bytes, bytes]:
    """The first stream of some compressed data, of at most ``limit`` bytes, and what comes after it."""
    try:
        unpacker = _unpacker(compression)
        unpacked = unpacker.decompress(content, limit + 1)
        if len(unpacked) > limit:
            raise BadArchiveError("it becomes too large when it is unpacked")
        if not unpacker.eof:
            raise BadArchiveError(f"damaged {compression} data: it ends too early")
    except (lzma.LZMAError, zlib.error, EOFError) as e:
        raise BadArchiveError(f"damaged {compression} data: {e}") from e
    return unpacked, unpacker.unused_data


class _Unpacker(Protocol):
    """What the decompressors of Python's own libraries have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes: ...


def _unpacker(compression: str) -> _Unpacker:
    if compression == "xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=bounds.XZ_MEMORY)
    if compression == "gz":
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    return _Zstd()


class _Zstd:
    """One frame of zstd, with the interface of the others."""

    def __init__(self) -> None:
        self.eof, self.unused_data = False, b""

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        # Imported here: Debian compresses with xz, so few archives need it.
        import zstandard

        found, unpacker = bytearray(), zstandard.ZstdDecompressor().decompressobj()
        try:
            # In small pieces: the library has no bound for what one piece may become, except 128 KiB for a block of
            # at least 3 bytes.
            for at in range(0, len(data), _PIECE):
                found += unpacker.decompress(data[at : at + _PIECE])
                if unpacker.eof or len(found) >= max_length:
                    self.eof = unpacker.eof
                    self.unused_data = unpacker.unused_data + bytes(data[at + _PIECE :])
                    break
        except zstandard.ZstdError as e:
            raise BadArchiveError(f"damaged zst data: {e}") from e
        return bytes(found)


def _unpacked_until(content: memoryview, stop: re.Pattern[str]) -> bytes:
    # Walks from header to header in the part that is decompressed so far, and decompresses more when it needs more.
    unpacker, found, at = lzma.LZMADecompressor(lzma.FORMAT_XZ, bounds.XZ_MEMORY), bytearray(), 0
    limit = bounds.unpacked(len(content), bounds.IN_MEMORY)
    try:
        found += unpacker.decompress(content, _AHEAD)
        while True:
            while len(found) < at + BLOCK and not unpacker.eof and not unpacker.needs_input:
                if at > limit:
                    raise BadArchiveError("it becomes too large when it is unpacked")
                found += unpacker.decompress(b"", max(_AHEAD, at + BLOCK - len(found)))
            header = bytes(found[at : at + BLOCK])
            if len(header) < BLOCK and not unpacker.eof:
                raise BadArchiveError("damaged xz data: it ends too early")
            if not any(header) or stop.fullmatch(_plain(_name(header))):
                return bytes(memoryview(found)[:at])
            at += BLOCK + (_number(header[124:136]) + BLOCK - 1) // BLOCK * BLOCK
    except (lzma.LZMAError, EOFError) as e:
        raise BadArchiveError(f"damaged xz data: {e}") from e


def members(archive: bytes) -> Iterator[Member]:
    """The members of a tar archive (ustar, GNU or pax), without ``./`` in front of their names."""
    view, at, end, count = memoryview(archive), 0, len(archive), 0
    long: dict[str, str] = {}
    while at + BLOCK <= end:
        header = archive[at : at + BLOCK]
        if header[0] == 0 and not any(header):  # a block of zeros ends the archive
            return
        _check_sum(header)
        count += 1
        if count > bounds.MEMBERS:
            raise BadArchiveError("it has too many members")
        size, flag = _number(header[124:136]), header[156:157]
        content = view[at + BLOCK : at + BLOCK + size]
        if len(content) != size:
            raise BadArchiveError("the tar archive is truncated")
        at += BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK
        # These hold a name, or other fields, for the member that follows: GNU's L and K, POSIX's x (and g for all).
        if flag in b"LKxg":
            if size > bounds.HEADER:
                raise BadArchiveError("an extended header that is too large")
            long |= _extension(flag, bytes(content))
            continue
        yield _member(header, flag, content, long)
        long = {}


def _member(header: bytes, flag: bytes, content: memoryview, long: dict[str, str]) -> Member:
    name = long.get("path") or _name(header)
    if flag in _DEVICES:
        raise BadArchiveError(f"{name!r} is {_DEVICES[flag]}")
    kind = _KINDS.get(flag)
    if kind is None:
        raise BadArchiveError(f"{name!r} is of an unknown kind {flag!r}")
    target = long.get("linkpath") or _text(header[157:257])
    return Member(_plain(name), kind, _number(header[100:108]) & 0o7777, target, content)


def _name(header: bytes) -> str:
    name = _text(header[:100])
    # Only POSIX archives have a prefix.  GNU's own format has other fields in this place, and another magic.
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _plain(name: str) -> str:
    while name.startswith("./"):
        name = name[2:]
    return name.rstrip("/") if name not in ("", ".", "/") else "."


def _extension(flag: bytes, content: bytes) -> dict[str, str]:
    if flag == b"L":
        return {"path": _text(content)}
    if flag == b"K":
        return {"linkpath": _text(content)}
    return _pax_records(content) if flag == b"x" else {}


def _pax_records(content: bytes) -> dict[str, str]:
    # "LENGTH KEY=VALUE\n", where LENGTH counts the whole record, itself included.
    found: dict[str, str] = {}
    at = 0
    while at < len(content):
        digits, space, _ = content[at : at + 10].partition(b" ")
        end = at + int(digits) if space and digits.isdigit() else 0
        record = content[at:end]
        if not record.endswith(b"\n") or end > len(content):
            raise BadArchiveError("a damaged extended header")
        key, _, value = record[len(digits) + 1 : -1].partition(b"=")
        if key in (b"path", b"linkpath"):
            found[key.decode()] = value.decode("utf-8", "surrogateescape")
        # A size in a pax record means that it does not fit into the header.  No package has such a file.
        elif key == b"size":
            raise BadArchiveError("a member larger than 8 GB")
        at = end
    return found


def _check_sum(header: bytes) -> None:
    # The checksum is computed with spaces in the place of its own eight bytes (8 * 32 = 256).
    if sum(header) - sum(header[148:156]) + 256 != _number(header[148:156]):
        raise BadArchiveError("a damaged tar header")


def _number(field: bytes) -> int:
    # Not only int(), which takes signs, spaces and underscores as well.
    digits = field.strip(b" \0") or b"0"
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise BadArchiveError("a damaged number in a tar header")
    return int(digits, 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")
