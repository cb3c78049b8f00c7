"""Just enough ELF to know a shared library's name: class, machine and ``DT_SONAME``."""

from __future__ import annotations

import struct
from dataclasses import dataclass

MACHINES = {"amd64": 62, "arm64": 183}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SONAME = 5, 14
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")


@dataclass(frozen=True)
class Library:
    """What the loader's cache needs to know about a file."""

    machine: int
    soname: str | None


def read_library(content: bytes) -> Library | None:
    """Look at a file's bytes; None for what is not a 64-bit little-endian ELF file with a dynamic section."""
    if content[:6] != b"\x7fELF\x02\x01" or len(content) < _HEADER.size:
        return None
    try:
        return _read(content)
    except (struct.error, ValueError):
        return None


def _read(content: bytes) -> Library | None:
    header = _HEADER.unpack_from(content)
    machine, at, size, count = header[2], header[5], header[9], header[10]
    segments = [_PROGRAM.unpack_from(content, at + i * size) for i in range(count)]
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return None
    tags: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<QQ", content[dynamic[2] : dynamic[2] + dynamic[5] // 16 * 16]):
        if tag == 0:
            break
        tags.setdefault(tag, value)
    if _DT_SONAME not in tags:
        return Library(machine, None)
    start = _offset(segments, tags[_DT_STRTAB]) + tags[_DT_SONAME]
    return Library(machine, content[start : content.index(b"\0", start)].decode("utf-8"))


def _offset(segments: list[tuple[int, ...]], address: int) -> int:
    for kind, _, offset, virtual, _, size, _, _ in segments:
        if kind == _PT_LOAD and virtual <= address < virtual + size:
            return address - virtual + offset
    raise ValueError("an address outside of every segment")
