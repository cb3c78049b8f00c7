"""Wheels to ``pkg-build`` objects: unpacked in process, checked against their own RECORD, never executed.

The tree of a pkg-build has four top-level directories: ``lib`` (site-packages, purelib and platlib
together), ``bin`` (scripts that the wheel ships; a ``#!python`` line stays as it is until an env knows its
interpreter), ``data`` (what goes to the env's root) and ``include``.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import posixpath
import stat
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import bounds
from px.env.layout import BadEntryPointError, is_reserved, read_entry_points
from px.errors import PxError
from px.store.tree import TreeWriter, UnsafePathError, check_path, check_plain_link

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.store.canonical import Value
    from px.store.objects import Payload

LAYOUT = 1
_CHUNK = 1 << 20
# Python's zipfile decompresses bzip2 and LZMA without a bound, and no tool makes such wheels.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")


class BadWheelError(Exception):
    """Why a wheel is refused."""


@dataclass(frozen=True)
class Scheme:
    """Where a wheel's file goes in the tree, and how an installed RECORD names it."""

    prefix: str
    recorded: str


_SITE = Scheme("lib/", "")
_SCHEMES = {
    "purelib": _SITE,
    "platlib": _SITE,
    "scripts": Scheme("bin/", "../../../bin/"),
    "data": Scheme("data/", "../../../"),
    "headers": Scheme("include/", "../../../include/"),
}


@dataclass(frozen=True)
class WheelOf:
    """Which package a wheel is said to be."""

    name: str
    version: str
    source: str
    """What the wheel was made from, for the record: its own sha256, or its sdist's."""
    shown: str = ""
    """Its name in errors, where the file itself is called otherwise."""


def unpack_wheel(wheel: Path, tree: TreeWriter, what: WheelOf) -> Payload:
    """Unpack ``wheel`` into ``tree`` and return the payload of its pkg-build; anything unsafe is PX203."""
    try:
        with _File(wheel.open("rb", buffering=0)) as file, zipfile.ZipFile(file) as archive:
            return _Unpacking(archive, tree, wheel.stat().st_size).run(what)
    except (
        BadWheelError,
        BadEntryPointError,
        UnsafePathError,
        zipfile.BadZipFile,
        zlib.error,
        csv.Error,
        EOFError,
        NotImplementedError,
        # Offsets before the start of the file, and text in RECORD or in links that is not UTF-8.
        ValueError,
    ) as e:
        shown = what.shown or wheel.name
        raise PxError("PX203", artifact=shown, package=what.name, version=what.version, problem=str(e)) from e


class _File(io.BufferedReader):
    """The file that zipfile reads.  It asks for the whole list of contents at once, and makes an object of each row."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > bounds.DIRECTORY:
            raise BadWheelError("its list of contents is too long")
        return super().read(bounds.DIRECTORY if size is None or size < 0 else size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if whence == 0 and offset < 0:  # where headers say that others are
            raise BadWheelError("its list of contents is damaged")
        return super().seek(offset, whence)


class _Unpacking:
    """One wheel on its way into one tree."""

    def __init__(self, archive: zipfile.ZipFile, tree: TreeWriter, size: int):
        self.archive = archive
        self.tree = tree
        self.members = _members(archive)
        # Of the file, and not of its members: these may overlap, so that many are made of the same bytes.
        if sum(member.file_size for member in self.members.values()) > bounds.unpacked(size):
            raise BadWheelError("it becomes too large when it is unpacked")
        self.dist_info = _dist_info(self.members)
        self.data = self.dist_info.removesuffix(".dist-info") + ".data"
        self.record = self._read_record()
        self.installed: list[tuple[str, str, str]] = []

    def run(self, what: WheelOf) -> Payload:
        self._check_wheel_version()
        for path, member in self.members.items():
            if path != f"{self.dist_info}/RECORD":
                self._file(path, member)
        missing = set(self.record) - set(self.members)
        if missing:
            raise BadWheelError(f"RECORD lists {min(missing)!r}, which is not in the archive")
        scripts = self._entry_points()
        self._write("lib/" + self.dist_info + "/INSTALLER", b"px\n", self.dist_info + "/INSTALLER")
        self._finish_record(scripts)
        return {
            "layout": LAYOUT,
            "name": what.name,
            "version": what.version,
            "source": what.source,
            "dist_info": self.dist_info,
            "tags": self._tags(),
            "scripts": scripts,
            "tree": self.tree.finish(),
        }

    def _read(self, path: str) -> bytes:
        member = self.members.get(path)
        if member is None:
            return b""
        if member.file_size > bounds.DOCUMENT:
            raise BadWheelError(f"{path!r} is too large")
        return b"".join(self._chunks(member))

    def _read_record(self) -> dict[str, tuple[str, str]]:
        path = f"{self.dist_info}/RECORD"
        if path not in self.members:
            raise BadWheelError("it has no RECORD")
        rows = csv.reader(io.StringIO(self._read(path).decode("utf-8", "strict")))
        return {row[0]: (row[1], row[2]) for row in rows if len(row) >= 3}

    def _check_wheel_version(self) -> None:
        for line in self._read(f"{self.dist_info}/WHEEL").decode("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() == "wheel-version":
                if value.strip().split(".")[0] != "1":
                    raise BadWheelError(f"its format is version {value.strip()}; px reads version 1")
                return
        raise BadWheelError("it has no WHEEL file with a Wheel-Version")

    def _tags(self) -> list[Value]:
        lines = self._read(f"{self.dist_info}/WHEEL").decode("utf-8", "replace").splitlines()
        return [*sorted(line.partition(":")[2].strip() for line in lines if line.lower().startswith("tag:"))]

    def _place(self, path: str) -> tuple[str, str]:
        """Where a member goes: (path in the tree, path in the installed RECORD)."""
        if not path.startswith(self.data + "/"):
            return _SITE.prefix + path, path
        _, scheme, rest = path.split("/", 2) if path.count("/") >= 2 else ("", "", "")
        if scheme not in _SCHEMES or not rest:
            raise BadWheelError(f"{path!r} belongs to no installation scheme")
        if is_reserved(scheme, rest):
            raise BadWheelError(f"{path!r} would take the place of a part of the env itself")
        found = _SCHEMES[scheme]
        return found.prefix + rest, found.recorded + rest

    def _file(self, path: str, member: zipfile.ZipInfo) -> None:
        placed, recorded = self._place(path)
        mode = member.external_attr >> 16
        if stat.S_ISLNK(mode):
            self._link(path, placed, member)
            return
        executable = bool(mode & 0o111) or placed.startswith("bin/")
        sha256 = self.tree.file(placed, self._chunks(member), 0o755 if executable else 0o644)
        self._verify(path, member, sha256)
        self.installed.append((recorded, _record_hash(sha256), str(member.file_size)))

    def _link(self, path: str, placed: str, member: zipfile.ZipInfo) -> None:
        if member.file_size > bounds.PATH:
            raise BadWheelError(f"link {path!r} is too long")
        content = b"".join(self._chunks(member))
        target = content.decode("utf-8", "strict")
        # Where it will be in an env: `lib` becomes site-packages, which it may not leave, and `data` the root.
        check_plain_link(placed.removeprefix("lib/").removeprefix("data/"), target)
        self._verify(path, member, hashlib.sha256(content).hexdigest())
        self.tree.symlink(placed, target)

    def _chunks(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        # Never ZipFile.read, which decompresses whatever is there before it looks at the size that the header says.
        with self.archive.open(member) as f:
            while chunk := f.read(_CHUNK):
                yield chunk

    def _verify(self, path: str, member: zipfile.ZipInfo, sha256: str) -> None:
        if path.startswith(self.dist_info + "/") and posixpath.basename(path) in _UNRECORDED:
            return
        if path not in self.record:
            raise BadWheelError(f"{path!r} is not listed in RECORD")
        expected, size = self.record[path]
        algorithm, _, value = expected.partition("=")
        if algorithm != "sha256":
            self._verify_other(path, member, algorithm, value)
        elif expected != _record_hash(sha256):
            raise BadWheelError(f"{path!r} does not have the hash that RECORD gives it")
        if size and size != str(member.file_size):
            raise BadWheelError(f"{path!r} does not have the size that RECORD gives it")

    def _verify_other(self, path: str, member: zipfile.ZipInfo, algorithm: str, value: str) -> None:
        if algorithm not in ("sha384", "sha512"):
            raise BadWheelError(f"{path!r} has no sha256 (or stronger) hash in RECORD")
        digest = hashlib.new(algorithm)
        for chunk in self._chunks(member):
            digest.update(chunk)
        if base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() != value:
            raise BadWheelError(f"{path!r} does not have the hash that RECORD gives it")

    def _entry_points(self) -> list[Value]:
        text = self._read(f"{self.dist_info}/entry_points.txt").decode("utf-8", "strict")
        return [[s.name, s.target, s.gui] for s in read_entry_points(text)]

    def _write(self, placed: str, content: bytes, recorded: str) -> None:
        if placed in self.tree:
            self.tree.remove(placed)
            self.installed = [row for row in self.installed if row[0] != recorded]
        sha256 = self.tree.file(placed, content)
        self.installed.append((recorded, _record_hash(sha256), str(len(content))))

    def _finish_record(self, scripts: list[Value]) -> None:
        """The RECORD of an installation, sorted: importlib.metadata lists a package's files from it."""
        rows = [*self.installed, (f"{self.dist_info}/RECORD", "", "")]
        rows += [(f"../../../bin/{s[0]}", "", "") for s in scripts if isinstance(s, list)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted(rows))
        self.tree.file(f"lib/{self.dist_info}/RECORD", text.getvalue().encode())


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files of the archive by path; names that are absolute, leave the tree or come twice are refused."""
    found: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > bounds.MEMBERS:
        raise BadWheelError("it has too many files")
    for member in archive.infolist():
        path = member.orig_filename
        if path.endswith("/"):
            check_path(path.rstrip("/"))
            continue
        if "\\" in path:
            raise BadWheelError(f"{path!r} has a backslash in its name")
        if member.flag_bits & 1 or member.compress_type not in _METHODS:
            raise BadWheelError(f"{path!r} is encrypted, or compressed in a way that wheels are not")
        check_path(path)
        if path in found:
            raise BadWheelError(f"two entries are called {path!r}")
        found[path] = member
    return found


def _dist_info(members: dict[str, zipfile.ZipInfo]) -> str:
    names = {path.split("/")[0] for path in members if path.split("/")[0].endswith(".dist-info")}
    if len(names) != 1:
        raise BadWheelError(f"it has {len(names)} .dist-info directories instead of one")
    return names.pop()


def _record_hash(sha256: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(binascii.unhexlify(sha256)).rstrip(b"=").decode()
