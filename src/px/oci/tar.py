"""The one tar writer: the same trees give the same bytes on every machine.

Members are sorted by path, carry no names of users, no times but one fixed constant, and no extension
records except where plain ustar cannot hold a name (longer than 255 bytes, or not ASCII) or a size (8 GiB).
Every file is hashed while it is copied and compared with its tree's spec, so that neither a damaged store
nor a file that somebody is editing can get into a layer unnoticed.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from px.store.tree import Entry, UnsafePathError, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

FORMAT = 1
"""Part of every cached layer's key: to be raised when the bytes that this module writes change."""

EPOCH = 315_619_200
"""1980-01-02T00:00:00Z, the time of every file in an image.

Not 0: zip archives start in 1980, so a program that zips files of its image (a wheel build, a Lambda
bundle) would fail.  The second of January, because zip keeps local time and some zones are behind UTC.
"""

ROOT = (0, 0)
_CHUNK = 1 << 20
_ZEROS = bytes(1024)
_DIRECTORY, _FILE, _SYMLINK, _HARDLINK, _PAX = b"5", b"0", b"2", b"1", b"x"
_TAIL = b"ustar\x0000" + bytes(64) + b"0000000\x000000000\x00"
_LARGEST = 0o77777777777


class ContentError(Exception):
    """A file that is not what its tree says: ``path`` is its place in the tree, ``problem`` what differs."""

    def __init__(self, root: Path, path: str, problem: str):
        super().__init__(f"{path}: {problem}")
        self.root, self.path, self.problem = root, path, problem


@dataclass(frozen=True)
class Part:
    """A tree on disk and where it goes in the image."""

    root: Path
    entries: Sequence[Entry]
    prefix: str = ""
    owner: tuple[int, int] = ROOT
    """uid and gid of everything in the tree; directories above ``prefix`` always belong to root."""
    owned: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Paths in the image whose subtrees belong to somebody else, for example ``("home/app", (1000, 1000))``."""


class _Member(NamedTuple):
    kind: str
    mode: int
    size: int
    detail: str
    """sha256 of a file, target of a link."""
    part: Part | None
    source: str
    owner: tuple[int, int]


def write_tar(parts: Sequence[Part], write: Callable[[bytes], object], *, mtime: int = EPOCH) -> None:
    """Write all parts as one archive, piece by piece, to ``write``."""
    members = _members(parts)
    for path in sorted(members):
        member = members[path]
        if member.kind == "d":
            write(header(path + "/", _DIRECTORY, mode=member.mode, owner=member.owner, mtime=mtime))
        elif member.kind == "l":
            write(header(path, _SYMLINK, link=member.detail, mode=0o777, owner=member.owner, mtime=mtime))
        elif member.kind == "h":
            write(header(path, _HARDLINK, link=member.detail, mode=member.mode, owner=member.owner, mtime=mtime))
        else:
            write(header(path, _FILE, size=member.size, mode=member.mode, owner=member.owner, mtime=mtime))
            _copy(member, write)
    write(_ZEROS)


def add_file(name: str, size: int, chunks: Iterable[bytes], write: Callable[[bytes], object]) -> None:
    """Append one plain file to an archive that is written by hand (an OCI archive)."""
    write(header(name, _FILE, size=size, mode=0o644, mtime=EPOCH))
    for chunk in chunks:
        write(chunk)
    write(padding(size))


def add_directory(name: str, write: Callable[[bytes], object]) -> None:
    write(header(name + "/", _DIRECTORY, mode=0o755, mtime=EPOCH))


def end(write: Callable[[bytes], object]) -> None:
    write(_ZEROS)


def padding(size: int) -> bytes:
    return _ZEROS[: -size % 512]


def _copy(member: _Member, write: Callable[[bytes], object]) -> None:
    part = member.part
    assert part is not None  # noqa: S101 - only directories have no part
    digest, left = hashlib.sha256(), member.size
    try:
        fd = os.open(native(part.root, member.source), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as e:
        raise ContentError(part.root, member.source, f"cannot be read: {e.strerror}") from e
    try:
        # One byte more than is expected: a file that has grown shows without another call.
        while left >= 0 and (chunk := os.read(fd, min(_CHUNK, left + 1))):
            digest.update(chunk)
            write(chunk)
            left -= len(chunk)
            if not left and len(chunk) < _CHUNK:
                break
    finally:
        os.close(fd)
    if left or digest.hexdigest() != member.detail:
        raise ContentError(part.root, member.source, "its content is not what it was when it was recorded")
    write(padding(member.size))


def _members(parts: Sequence[Part]) -> dict[str, _Member]:
    found: dict[str, _Member] = {}
    for part in parts:
        for path, member in _placed(part):
            before = found.get(path)
            if before is not None and (before.kind != "d" or member.kind != "d"):
                raise UnsafePathError(f"two entries for {path!r}")
            found[path] = member
    for path in list(found):
        _add_parents(found, path)
    return found


def _add_parents(found: dict[str, _Member], path: str) -> None:
    while path := posixpath.dirname(path):
        parent = found.get(path)
        if parent is None:
            found[path] = _Member("d", 0o755, 0, "", None, "", ROOT)
            continue
        if parent.kind != "d":
            raise UnsafePathError(f"{path!r} is not a directory, yet something lies below it")
        return


def _placed(part: Part) -> Iterator[tuple[str, _Member]]:
    """The members of one part under their paths in the image."""
    base = part.prefix + "/" if part.prefix else ""
    if part.prefix:
        owner = _owner(part, part.prefix) if part.owned else part.owner
        yield part.prefix, _Member("d", 0o755, 0, "", None, "", owner)
    first, modes = _hardlinks(part.entries)
    for entry in part.entries:
        kind, source = str(entry[0]), str(entry[1])
        path = base + source
        owner = _owner(part, path) if part.owned else part.owner
        if kind == "d":
            yield path, _Member("d", int(entry[2]), 0, "", part, source, owner)
        elif kind == "l":
            yield path, _Member("l", 0o777, 0, str(entry[2]), part, source, owner)
        else:
            target = source if kind == "f" else str(entry[2])
            mode, size, sha256 = modes[target] if kind == "h" else (int(entry[2]), int(entry[3]), str(entry[4]))
            if first.get(target, source) == source:
                yield path, _Member("f", mode, size, sha256, part, source, owner)
            else:
                yield path, _Member("h", mode, 0, base + first[target], part, source, owner)


def _hardlinks(entries: Sequence[Entry]) -> tuple[dict[str, str], dict[str, tuple[int, int, str]]]:
    """For every file with several names: which name comes first in the archive, and what it holds.

    A reader can only link to what it has already seen, so the first name in sorted order carries the
    content, whichever of them the tree calls the file.
    """
    first: dict[str, str] = {}
    for entry in entries:
        if entry[0] == "h":
            target, path = str(entry[2]), str(entry[1])
            first[target] = min(path, first.get(target, target))
    if not first:
        return first, {}
    return first, {str(e[1]): (int(e[2]), int(e[3]), str(e[4])) for e in entries if e[0] == "f" and str(e[1]) in first}


def _owner(part: Part, path: str) -> tuple[int, int]:
    for subtree, owner in part.owned:
        if path == subtree or path.startswith(subtree + "/"):
            return owner
    return part.owner


def header(
    name: str,
    kind: bytes,
    *,
    size: int = 0,
    link: str = "",
    mode: int = 0o644,
    owner: tuple[int, int] = ROOT,
    mtime: int = EPOCH,
) -> bytes:
    """The header blocks of one member: 512 bytes, more only where ustar cannot say it."""
    raw, target = name.encode("utf-8", "surrogateescape"), link.encode("utf-8", "surrogateescape")
    records: dict[str, bytes] = {}
    prefix = b""
    if len(raw) > 100 or not raw.isascii():
        prefix, raw, fits = _split(raw)
        if not fits:
            records["path"] = name.encode("utf-8", "surrogateescape")
    if len(target) > 100 or not target.isascii():
        records["linkpath"] = target
        target = _stand_in(target)
    if size > _LARGEST:
        records["size"] = b"%d" % size
    block = _block(raw, kind, min(size, _LARGEST), target, mode & 0o7777, owner, mtime, prefix)
    return _pax(records, raw, mtime) + block if records else block


def _block(
    name: bytes, kind: bytes, size: int, link: bytes, mode: int, owner: tuple[int, int], mtime: int, prefix: bytes
) -> bytes:
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, *owner, size, mtime)
    front = name.ljust(100, b"\0") + numbers
    rest = kind + link.ljust(100, b"\0") + _TAIL + prefix.ljust(167, b"\0")
    checksum = sum(front) + sum(rest) + 256  # the checksum's own field counts as eight spaces
    return b"%b%06o\0 %b" % (front, checksum, rest)


def _split(raw: bytes) -> tuple[bytes, bytes, bool]:
    """(prefix, name, whether the two say it all): ustar can hold 155 + 100 bytes, cut at a slash."""
    if raw.isascii() and len(raw) <= 256:
        # A directory's own trailing slash is no place to cut: the name would be empty.
        cut = raw.rfind(b"/", 0, min(156, len(raw) - 1))
        if cut > 0 and len(raw) - cut - 1 <= 100:
            return raw[:cut], raw[cut + 1 :], True
    return b"", _stand_in(raw), False


def _stand_in(raw: bytes) -> bytes:
    """What a reader that ignores extension records would see: ASCII, 100 bytes."""
    return raw.decode("ascii", "replace").replace("\ufffd", "?").encode("ascii")[:100]


def _pax(records: dict[str, bytes], name: bytes, mtime: int) -> bytes:
    body = b"".join(_record(key.encode(), records[key]) for key in sorted(records))
    label = (b"PaxHeaders/" + name.rstrip(b"/").rpartition(b"/")[2])[:100]
    return _block(label, _PAX, len(body), b"", 0o644, ROOT, mtime, b"") + body + padding(len(body))


def _record(key: bytes, value: bytes) -> bytes:
    # The length counts its own digits: grow it until it is right.
    length = len(key) + len(value) + 3
    while len(b"%d" % length) + len(key) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(key) + len(value) + 3
    return b"%d %b=%b\n" % (length, key, value)
