"""The only tar writer in px.  The same trees give the same bytes on every machine.

Members are sorted by path.  They have no user names, and all have the same fixed time.  The format is ustar; a pax
record is written only for a name that ustar cannot hold (too long, or not ASCII) and for a size of 8 GiB or more.  Each
file is hashed while it is copied and compared with the spec of its tree.  So neither a damaged store nor a file that
somebody is editing gets into a layer unnoticed.
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
"""Part of the key of every packed layer.  Raise it if this module writes other bytes for the same tree."""

EPOCH = 315_619_200
"""1980-01-02T00:00:00Z, the time of every file in an image.

Not 0, because zip archives cannot hold times before 1980: a program that zips files of its image (a wheel, a Lambda
bundle) would fail.  The second of January, because zip has local time, and some time zones are behind UTC.
"""

ROOT = (0, 0)
_CHUNK = 1 << 20
_ZEROS = bytes(1024)
_DIRECTORY, _FILE, _SYMLINK, _HARDLINK, _PAX = b"5", b"0", b"2", b"1", b"x"
# Magic and version, no user and group name, and 0 for the device numbers.
_TAIL = b"ustar\x0000" + bytes(64) + b"0000000\x000000000\x00"
# The size field has eleven octal digits: just below 8 GiB.
_LARGEST = 0o77777777777


class ContentError(Exception):
    """A file does not match the spec of its tree."""

    def __init__(self, root: Path, path: str, problem: str):
        super().__init__(f"{path}: {problem}")
        self.root, self.path, self.problem = root, path, problem


@dataclass(frozen=True)
class Part:
    """A tree on disk, and its place and owner in the image."""

    root: Path
    entries: Sequence[Entry]
    prefix: str = ""
    owner: tuple[int, int] = ROOT
    """uid and gid of everything in the tree.  The directories above ``prefix`` always belong to root."""
    owned: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Subtrees of the image with another owner, for example ``("home/app", (1000, 1000))``."""


class _Member(NamedTuple):
    kind: str
    mode: int
    size: int
    detail: str
    """The sha256 of a file, or the target of a link."""
    part: Part | None
    source: str
    owner: tuple[int, int]


def write_tar(parts: Sequence[Part], write: Callable[[bytes], object], *, mtime: int = EPOCH) -> None:
    """Write all parts as one archive, in pieces, to ``write``."""
    members = _members(parts)
    for path in sorted(members):
        member = members[path]
        mode, owner = member.mode, member.owner
        if member.kind == "d":
            head = Header(path + "/", _DIRECTORY, mode=mode, owner=owner, mtime=mtime)
        elif member.kind == "l":
            head = Header(path, _SYMLINK, link=member.detail, mode=0o777, owner=owner, mtime=mtime)
        elif member.kind == "h":
            head = Header(path, _HARDLINK, link=member.detail, mode=mode, owner=owner, mtime=mtime)
        else:
            head = Header(path, _FILE, size=member.size, mode=mode, owner=owner, mtime=mtime)
        write(head.encode())
        if member.kind == "f":
            _copy(member, write)
    write(_ZEROS)  # two blocks of zeros end an archive


def add_file(name: str, size: int, chunks: Iterable[bytes], write: Callable[[bytes], object]) -> None:
    """Write one file of an archive that the caller composes itself (an OCI archive)."""
    write(Header(name, _FILE, size).encode())
    for chunk in chunks:
        write(chunk)
    write(padding(size))


def add_directory(name: str, write: Callable[[bytes], object]) -> None:
    write(Header(name + "/", _DIRECTORY, mode=0o755).encode())


def end(write: Callable[[bytes], object]) -> None:
    write(_ZEROS)


def padding(size: int) -> bytes:
    return _ZEROS[: -size % 512]


def _copy(member: _Member, write: Callable[[bytes], object]) -> None:
    part = member.part
    assert part is not None  # noqa: S101 - only directories have no part
    # Written while it is checked, because files can be large.  After an error the caller throws the archive away.
    digest, left = hashlib.sha256(), member.size
    try:
        # In a working tree somebody could replace the file by a link to any file of this machine, or by a pipe.
        fd = os.open(native(part.root, member.source), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as e:
        raise ContentError(part.root, member.source, f"cannot be read: {e.strerror}") from e
    try:
        # Asks for one byte more than expected: if the file has grown, that shows without a further read.
        while left >= 0 and (chunk := os.read(fd, min(_CHUNK, left + 1))):
            digest.update(chunk)
            write(chunk)
            left -= len(chunk)
            if not left and len(chunk) < _CHUNK:
                break
    finally:
        os.close(fd)
    if left or digest.hexdigest() != member.detail:
        raise ContentError(part.root, member.source, "its content has changed since px hashed it")
    write(padding(member.size))


def _members(parts: Sequence[Part]) -> dict[str, _Member]:
    found: dict[str, _Member] = {}
    for part in parts:
        for path, member in _placed(part):
            # Two parts may share directories, but nothing else.
            before = found.get(path)
            if before is not None and (before.kind != "d" or member.kind != "d"):
                raise UnsafePathError(f"two entries for {path!r}")
            found[path] = member
    for path in list(found):
        _add_parents(found, path)
    return found


def _add_parents(found: dict[str, _Member], path: str) -> None:
    # Every directory gets an entry: without one, tools that unpack the layer choose owner, mode and time themselves.
    while path := posixpath.dirname(path):
        parent = found.get(path)
        if parent is None:
            found[path] = _Member("d", 0o755, 0, "", None, "", ROOT)
            continue
        if parent.kind != "d":
            raise UnsafePathError(f"{path!r} is not a directory, yet something lies below it")
        return


def _placed(part: Part) -> Iterator[tuple[str, _Member]]:
    """The members of one part, with their paths in the image."""
    base = part.prefix + "/" if part.prefix else ""
    # The prefix itself belongs to the part: /app must be writable for the image's user.
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
    """For files with several names: the name that comes first in the archive, and mode, size and sha256.

    In a tar a hard link can only point to an earlier member.  So the name that sorts first gets the content, even if
    the spec of the tree has another of the names as the file.
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


@dataclass(frozen=True)
class Header:
    """The fields of a member's header."""

    name: str
    kind: bytes
    size: int = 0
    link: str = ""
    mode: int = 0o644
    owner: tuple[int, int] = ROOT
    mtime: int = EPOCH

    def encode(self) -> bytes:
        """The header: one block of 512 bytes, after a pax header if ustar cannot hold a field."""
        raw, target = self.name.encode("utf-8", "surrogateescape"), self.link.encode("utf-8", "surrogateescape")
        records: dict[str, bytes] = {}
        prefix = b""
        # ustar says nothing about the encoding of names, so names that are not ASCII go into pax records, as UTF-8.
        if len(raw) > 100 or not raw.isascii():
            prefix, raw, fits = _split(raw)
            if not fits:
                records["path"] = self.name.encode("utf-8", "surrogateescape")
        if len(target) > 100 or not target.isascii():
            records["linkpath"] = target
            target = _stand_in(target)
        if self.size > _LARGEST:
            records["size"] = b"%d" % self.size
        block = self._block(raw, target, prefix)
        return self._pax(records, raw) + block if records else block

    def _block(self, name: bytes, link: bytes = b"", prefix: bytes = b"") -> bytes:
        numbers = (self.mode & 0o7777, *self.owner, min(self.size, _LARGEST), self.mtime)
        front = name.ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % numbers
        rest = self.kind + link.ljust(100, b"\0") + _TAIL + prefix.ljust(167, b"\0")
        checksum = sum(front) + sum(rest) + 256  # its own field counts as eight spaces
        return b"%b%06o\0 %b" % (front, checksum, rest)

    def _pax(self, records: dict[str, bytes], name: bytes) -> bytes:
        body = b"".join(_record(key.encode(), records[key]) for key in sorted(records))
        # A name like that of other tar programs, but without the process id that GNU tar used to put into it.
        label = (b"PaxHeaders/" + name.rstrip(b"/").rpartition(b"/")[2])[:100]
        head = Header("", _PAX, len(body), mtime=self.mtime)
        return head._block(label) + body + padding(len(body))


def _split(raw: bytes) -> tuple[bytes, bytes, bool]:
    """(prefix, name, whether they hold the whole name).  ustar has 155 + 100 bytes, divided at a slash."""
    if raw.isascii() and len(raw) <= 256:
        # Not at the slash that ends the name of a directory: the name field would be empty.
        cut = raw.rfind(b"/", 0, min(156, len(raw) - 1))
        if cut > 0 and len(raw) - cut - 1 <= 100:
            return raw[:cut], raw[cut + 1 :], True
    return b"", _stand_in(raw), False


def _stand_in(raw: bytes) -> bytes:
    """The name for programs that do not know pax records: 100 bytes of ASCII."""
    return raw.decode("ascii", "replace").replace("\ufffd", "?").encode("ascii")[:100]


def _record(key: bytes, value: bytes) -> bytes:
    # The length counts its own digits, so a longer length may need one digit more: repeat until it fits.
    length = len(key) + len(value) + 3
    while len(b"%d" % length) + len(key) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(key) + len(value) + 3
    return b"%d %b=%b\n" % (length, key, value)
