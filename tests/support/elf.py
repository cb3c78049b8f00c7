"""Real ELF files, a few hundred bytes each, written on the spot: what a linker would make of an empty library.

They have program headers and no section headers, like stripped files: whoever reads them must do it the way
the loader does.
"""

from __future__ import annotations

import struct

MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER, _PROGRAM = 64, 56


def _hash(name: str) -> int:
    h = 0
    for ch in name.encode():
        h = (h << 4) + ch
        g = h & 0xF0000000
        h = (h ^ (g >> 24)) & ~g & 0xFFFFFFFF
    return h


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def make_elf(
    *needed: str,
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    interpreter: str | None = None,
    wants: tuple[tuple[str, str], ...] = (),
    weak: tuple[tuple[str, str], ...] = (),
    versions: tuple[str, ...] = (),
    machine: str = "x86_64",
) -> bytes:
    """``wants`` and ``weak``: (library, symbol version) pairs; ``versions``: what the file itself defines."""
    strings = _Strings()
    tags: list[tuple[int, int]] = [(1, strings.add(name)) for name in needed]
    tags += [(tag, strings.add(text)) for tag, text in ((14, soname), (15, rpath), (29, runpath)) if text is not None]
    needs = _version_needs(strings, [(*pair, 0) for pair in wants] + [(*pair, 2) for pair in weak])
    defines = _version_definitions(strings, soname or "self", versions)
    count = 3 if interpreter else 2
    at = _HEADER + count * _PROGRAM
    parts, places = [], []
    for part in (needs, defines, strings.data, (interpreter or "").encode() + b"\0"):
        places.append(at)
        padded = part + b"\0" * (-len(part) % 8)
        parts.append(padded)
        at += len(padded)
    if needs:
        tags += [(0x6FFFFFFE, places[0]), (0x6FFFFFFF, len(wants) + len(weak))]
    if versions:
        tags += [(0x6FFFFFFC, places[1]), (0x6FFFFFFD, len(versions) + 1)]
    tags += [(5, places[2]), (10, len(strings.data)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    total = at + len(dynamic)
    programs = [(1, 0, total), (2, at, len(dynamic))]
    if interpreter:
        programs.append((3, places[3], len(interpreter) + 1))
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, MACHINES[machine], 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, count, 64, 0, 0)
    for kind, offset, size in programs:
        head += struct.pack("<IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 8)
    return head + b"".join(parts) + dynamic


def _version_needs(strings: _Strings, pairs: list[tuple[str, str, int]]) -> bytes:
    out = b""
    for i, (library, version, flags) in enumerate(pairs):
        following = 32 if i + 1 < len(pairs) else 0
        out += struct.pack("<HHIII", 1, 1, strings.add(library), 16, following)
        out += struct.pack("<IHHII", _hash(version), flags, i + 2, strings.add(version), 0)
    return out


def _version_definitions(strings: _Strings, own: str, versions: tuple[str, ...]) -> bytes:
    if not versions:
        return b""
    out, names = b"", (own, *versions)
    for i, name in enumerate(names):
        following = 28 if i + 1 < len(names) else 0
        out += struct.pack("<HHHHIII", 1, 1 if i == 0 else 0, i + 1, 1, _hash(name), 20, following)
        out += struct.pack("<II", strings.add(name), 0)
    return out
