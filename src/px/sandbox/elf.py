"""Reading what the dynamic loader would read of an ELF file, and no more; nothing is ever executed.

A whole image has thousands of ELF files, and pyelftools needs milliseconds for what takes microseconds with
``struct``: header, program headers, dynamic section, version tables.  Everything is found as the loader finds
it, through the program headers, so that files whose section headers were stripped are read just the same.
The tests compare every field with pyelftools on real wheels.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ET_EXEC, ET_DYN = 2, 3
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 10, 14, 15, 29
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
VER_FLG_WEAK = 2
MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
            243: "riscv64", 258: "loongarch64"}  # fmt: skip
# Far more than real files have; a damaged or hostile one ends there.
_LIMIT = 1 << 16  # entries in any one table
_LONGEST = 1 << 14  # bytes of any one name or search path


class _DamagedError(Exception):
    """The file starts like ELF and then makes no sense."""


@dataclass(frozen=True)
class Elf:
    """What one executable or shared object asks of the loader, and what it offers."""

    machine: str
    bits: int
    interpreter: str | None
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    version_needs: tuple[tuple[str, str], ...]
    """(library, version) pairs without which the loader gives up; weak ones are left out."""
    versions: tuple[str, ...]
    """The symbol versions that this file defines."""


def read_elf(path: Path | str | bytes) -> Elf | None:
    """Read one file: None if it is not an executable or shared object, or is too damaged to be loaded."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = os.read(fd, 20)
        if len(start) < 20 or start[:4] != b"\x7fELF":
            return None
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
            return _Image(data).elf()
    except (_DamagedError, struct.error, LookupError, ValueError, OverflowError):
        return None
    finally:
        os.close(fd)


class _Image:
    """One mapped file."""

    def __init__(self, data: mmap.mmap):
        if data[4] not in (1, 2) or data[5] not in (1, 2):
            raise _DamagedError
        self.data = data
        self.wide = data[4] == 2
        self.order = "<" if data[5] == 1 else ">"
        self.segments = list(self._segments())
        self.strings = (0, 0)

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + layout, self.data, offset)

    def _segments(self) -> Iterator[tuple[int, int, int, int]]:
        """(type, file offset, address, size in the file) of every program header."""
        if self.wide:
            (start,), (size, count) = self.unpack("Q", 32), self.unpack("HH", 54)
        else:
            (start,), (size, count) = self.unpack("I", 28), self.unpack("HH", 42)
        for i in range(count):
            at = start + i * size
            if self.wide:
                kind, _, offset, address, _, length = self.unpack("IIQQQQ", at)
            else:
                kind, offset, address, _, length = self.unpack("IIIII", at)
            yield kind, offset, address, length

    def elf(self) -> Elf | None:
        kind, machine = self.unpack("HH", 16)
        if kind not in (ET_EXEC, ET_DYN):
            return None
        dynamic = self._dynamic()
        self.strings = self._string_table(dynamic)
        return Elf(
            machine=MACHINES.get(machine, f"machine-{machine}"),
            bits=64 if self.wide else 32,
            interpreter=self._interpreter(),
            soname=next((self._string(v) for v in dynamic.get(DT_SONAME, ())), None),
            needed=tuple(self._string(v) for v in dynamic.get(DT_NEEDED, ())),
            rpath=self._search_path(dynamic, DT_RPATH),
            runpath=self._search_path(dynamic, DT_RUNPATH),
            version_needs=tuple(islice(self._version_needs(dynamic), _LIMIT)),
            versions=tuple(islice(self._versions(dynamic), _LIMIT)),
        )

    def _dynamic(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        layout, size = ("QQ", 16) if self.wide else ("II", 8)
        for kind, offset, _, length in self.segments:
            if kind != PT_DYNAMIC:
                continue
            for at in range(offset, offset + min(length, _LIMIT * size), size):
                tag, value = self.unpack(layout, at)
                if tag == 0:
                    break
                found.setdefault(tag, []).append(value)
        return found

    def _interpreter(self) -> str | None:
        for kind, offset, _, length in self.segments:
            if kind == PT_INTERP:
                return self.data[offset : offset + length].split(b"\0", 1)[0].decode()
        return None

    def _offset(self, address: int) -> int:
        """Where in the file the loader would find an address."""
        for kind, offset, start, length in self.segments:
            if kind == PT_LOAD and start <= address < start + length:
                return offset + address - start
        raise _DamagedError

    def _string_table(self, dynamic: dict[int, list[int]]) -> tuple[int, int]:
        if DT_STRTAB not in dynamic or DT_STRSZ not in dynamic:
            return (0, 0)
        start = self._offset(dynamic[DT_STRTAB][0])
        return (start, start + dynamic[DT_STRSZ][0])

    def _string(self, index: int) -> str:
        start, end = self.strings
        stop = self.data.find(b"\0", start + index, min(end, start + index + _LONGEST))
        if not start <= start + index < end or stop < 0:
            raise _DamagedError
        return self.data[start + index : stop].decode("utf-8")

    def _search_path(self, dynamic: dict[int, list[int]], tag: int) -> tuple[str, ...]:
        return tuple(part for value in dynamic.get(tag, ()) for part in self._string(value).split(":") if part)

    def _version_needs(self, dynamic: dict[int, list[int]]) -> Iterator[tuple[str, str]]:
        if DT_VERNEED not in dynamic:
            return
        at = self._offset(dynamic[DT_VERNEED][0])
        for _ in range(min(dynamic[DT_VERNEEDNUM][0], _LIMIT)):
            _, count, file, first, following = self.unpack("HHIII", at)
            entry = at + first
            for _ in range(count):
                _, flags, _, name, step = self.unpack("IHHII", entry)
                if not flags & VER_FLG_WEAK:
                    yield self._string(file), self._string(name)
                if not step:
                    break
                entry += step
            at += following
            if not following:
                break

    def _versions(self, dynamic: dict[int, list[int]]) -> Iterator[str]:
        if DT_VERDEF not in dynamic:
            return
        at = self._offset(dynamic[DT_VERDEF][0])
        for _ in range(min(dynamic[DT_VERDEFNUM][0], _LIMIT)):
            _, flags, _, _, _, first, following = self.unpack("HHHHIII", at)
            (name,) = self.unpack("I", at + first)
            if not flags & 1:  # VER_FLG_BASE: the file's own name, not a version
                yield self._string(name)
            at += following
            if not following:
                break
