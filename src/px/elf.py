"""A reader for the parts of an ELF file that the dynamic loader reads.  It never executes anything.

An image has thousands of ELF files.  pyelftools needs milliseconds for each of them, ``struct`` needs microseconds.
Like the loader, this module starts from the program headers, so it can also read files whose section headers were
stripped.  The tests compare every field with pyelftools on real wheels.
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

_MAGIC = b"\x7fELF"
# Numbers and names are those of <elf.h>.
ET_EXEC, ET_DYN = 2, 3
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 10, 14, 15, 29
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
VER_FLG_WEAK = 2
MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
            243: "riscv64", 258: "loongarch64"}  # fmt: skip
# Limits for damaged or hostile files.  Real files stay far below them.
_LIMIT = 1 << 16  # entries in any one table
_LONGEST = 1 << 14  # bytes of any one name or search path
# And for all of it together: tables may overlap, and lead from one into the other as often as they like.
_READS = 1 << 18
_TEXT = 1 << 22


class _DamagedError(Exception):
    """The file has the ELF magic, but the rest of it is not valid."""


@dataclass(frozen=True)
class Elf:
    """What one executable or shared object needs from the loader, and what it offers to others."""

    machine: str
    bits: int
    interpreter: str | None
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    version_needs: tuple[tuple[str, str], ...]
    """(library, symbol version) pairs that must exist, or the loader gives up.  Weak ones are left out."""
    versions: tuple[str, ...]
    """The symbol versions that this file defines."""


def read_elf(path: Path | str | bytes) -> Elf | None:
    """Read one file.  None means: not an executable or shared object, or too damaged for the loader."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.read(fd, len(_MAGIC)) != _MAGIC:
            return None  # most files are not ELF, and reading four bytes is cheaper than mapping a file
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
            return parse_elf(data)
    finally:
        os.close(fd)


def parse_elf(data: bytes | mmap.mmap) -> Elf | None:
    """As :func:`read_elf`, for the content of a file."""
    # 20 bytes: e_ident, e_type and e_machine, which 32-bit and 64-bit files have in the same place.
    if len(data) < 20 or data[:4] != _MAGIC:
        return None
    try:
        return _Image(data).elf()
    # Offsets that point outside the file, strings that are not UTF-8, missing tags: a loader refuses such a file too.
    except (_DamagedError, struct.error, LookupError, ValueError, OverflowError):
        return None


class _Image:
    """One mapped file, and where its segments are."""

    def __init__(self, data: bytes | mmap.mmap):
        # e_ident[EI_CLASS]: 1 is 32-bit, 2 is 64-bit.  e_ident[EI_DATA]: 1 is little-endian, 2 is big-endian.
        if data[4] not in (1, 2) or data[5] not in (1, 2):
            raise _DamagedError
        self.data = data
        self.wide = data[4] == 2
        self.order = "<" if data[5] == 1 else ">"
        self.reads, self.text = _READS, _TEXT
        self.segments = list(self._segments())
        self.strings = (0, 0)

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        self.reads -= 1
        if self.reads < 0:
            raise _DamagedError
        return struct.unpack_from(self.order + layout, self.data, offset)

    def _segments(self) -> Iterator[tuple[int, int, int, int]]:
        """(type, file offset, address, size in the file) of every program header."""
        # e_phoff, then e_phentsize and e_phnum.
        if self.wide:
            (start,), (size, count) = self.unpack("Q", 32), self.unpack("HH", 54)
        else:
            (start,), (size, count) = self.unpack("I", 28), self.unpack("HH", 42)
        for i in range(count):
            at = start + i * size
            # p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz; in 32-bit files p_flags comes later.
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
            # The loader ignores RPATH if there is a RUNPATH.  That is left to whoever resolves libraries.
            rpath=self._search_path(dynamic, DT_RPATH),
            runpath=self._search_path(dynamic, DT_RUNPATH),
            version_needs=tuple(islice(self._version_needs(dynamic), _LIMIT)),
            versions=tuple(islice(self._versions(dynamic), _LIMIT)),
        )

    def _dynamic(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        layout, size = ("QQ", 16) if self.wide else ("II", 8)
        # Some tags, such as DT_NEEDED, occur many times: each keeps a list.
        for kind, offset, _, length in self.segments:
            if kind != PT_DYNAMIC:
                continue
            for at in range(offset, offset + min(length, _LIMIT * size), size):
                tag, value = self.unpack(layout, at)
                if tag == 0:  # DT_NULL ends the table
                    break
                found.setdefault(tag, []).append(value)
        return found

    def _interpreter(self) -> str | None:
        for kind, offset, _, length in self.segments:
            if kind == PT_INTERP:
                return self.data[offset : offset + min(length, _LONGEST)].split(b"\0", 1)[0].decode()
        return None

    def _offset(self, address: int) -> int:
        """The place in the file of an address.  The dynamic section has addresses, not file offsets."""
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
        self.text -= stop - start - index
        if not start <= start + index < end or stop < 0 or self.text < 0:
            raise _DamagedError
        return self.data[start + index : stop].decode("utf-8")

    def _search_path(self, dynamic: dict[int, list[int]], tag: int) -> tuple[str, ...]:
        return tuple(part for value in dynamic.get(tag, ()) for part in self._string(value).split(":") if part)

    def _version_needs(self, dynamic: dict[int, list[int]]) -> Iterator[tuple[str, str]]:
        if DT_VERNEED not in dynamic:
            return
        # The version tables have the same layout in 32-bit and 64-bit files: Elf_Verneed and Elf_Vernaux here.
        at = self._offset(dynamic[DT_VERNEED][0])
        for _ in range(min(dynamic[DT_VERNEEDNUM][0], _LIMIT)):
            _, count, file, first, following = self.unpack("HHIII", at)
            entry = at + first
            for _ in range(count):
                _, flags, _, name, step = self.unpack("IHHII", entry)
                if not flags & VER_FLG_WEAK:  # if a weak version is missing, the loader only warns
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
        # Elf_Verdef.  Its first Elf_Verdaux has the version's name; further ones name its parents.
        at = self._offset(dynamic[DT_VERDEF][0])
        for _ in range(min(dynamic[DT_VERDEFNUM][0], _LIMIT)):
            _, flags, _, _, _, first, following = self.unpack("HHHHIII", at)
            (name,) = self.unpack("I", at + first)
            if not flags & 1:  # VER_FLG_BASE: the file's own name, not a version
                yield self._string(name)
            at += following
            if not following:
                break
