"""``/etc/ld.so.cache`` as ldconfig writes it, byte for byte.

The loader runs without a cache, but ``ctypes.util.find_library`` reads it, and programs in large images
start faster with one.  The format is that of glibc 2.32 and later: a header, entries sorted in descending
order, strings whose tails are shared, and an extension that names the generator.
"""

from __future__ import annotations

import functools
import posixpath
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.debian.elf import MACHINES, read_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

CACHE = "etc/ld.so.cache"
_FLAGS = {MACHINES["amd64"]: 0x0303, MACHINES["arm64"]: 0x0A03}
# glibc's own list, after the configured directories; Debian's does not look into /lib64.
_SYSTEM = ("/lib", "/usr/lib")
_MACHINE_OF = {"x86_64-linux-gnu": MACHINES["amd64"], "aarch64-linux-gnu": MACHINES["arm64"]}
_NAME = re.compile(r"(?:lib|ld-).*\.so")
_HEADER = struct.Struct("<17s3sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_EXTENSION_MAGIC = 0xEAA42174
_GLIBC = re.compile(rb"GNU C Library \((.+?)\) ((?:stable|development) release) version (\d+\.\d+)")


@dataclass(frozen=True)
class CacheEntry:
    """A library name and the path that it stands for."""

    name: str
    path: str


def ld_cache(image: Image, _: Sequence[Unpacked]) -> None:
    """Write the cache, and the links from sonames to files that packages left to ldconfig.

    Runs last: it looks at every library of the image.
    """
    machine = next(m for triplet, m in _MACHINE_OF.items() if f"usr/lib/{triplet}" in image)
    entries = [entry for directory in _directories(image) for entry in _libraries(image, directory, machine)]
    image.file(CACHE, encode(entries, _FLAGS[machine], _generator(image, machine)))


def library_directories(image: Image) -> tuple[str, ...]:
    """The directories that the image's loader searches, without a leading slash, links followed."""
    return tuple(image.resolve(d.lstrip("/")) for d in _directories(image))


def _directories(image: Image) -> list[str]:
    seen: dict[str, str] = {}
    for spelled in [*_configured(image, "etc/ld.so.conf"), *_SYSTEM]:
        real = image.resolve(spelled.lstrip("/"))
        found = image.entry(real)
        if found is not None and found[0] == "d":
            seen.setdefault(real, spelled)
    return list(seen.values())


def _configured(image: Image, path: str) -> Iterator[str]:
    if path not in image:
        return
    for line in image.read(path).decode("utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("include "):
            directory, _, pattern = text.removeprefix("include ").strip().lstrip("/").rpartition("/")
            matching = re.compile(re.escape(pattern).replace(r"\*", ".*"))
            for name in image.listing(directory):
                if matching.fullmatch(name):
                    yield from _configured(image, f"{directory}/{name}")
        elif text:
            yield text.rstrip("/")


def _libraries(image: Image, directory: str, machine: int) -> list[CacheEntry]:
    """The libraries of one directory, by the rules that ldconfig has for names, links and sonames."""
    root = directory.lstrip("/")
    chosen: dict[str, tuple[str, bool]] = {}
    for name in image.listing(root):
        if _NAME.match(name) is None:
            continue
        place = image.place(f"{root}/{name}")
        soname = _soname(image, place, machine)
        if soname is None:
            continue
        is_link = image.entry(place)[0] == "l"  # type: ignore[index]
        if is_link and name != soname:
            is_link = name.endswith(".so") and soname.startswith(name)
        key = name if is_link else soname
        known = chosen.get(key)
        if known is None or _prefers(name, known, is_link=is_link):
            chosen[key] = (name, is_link)
    for soname, (name, is_link) in chosen.items():
        if not is_link and f"{root}/{soname}" not in image:
            image.link(f"{root}/{soname}", name)
    return [CacheEntry(soname, f"{directory}/{soname}") for soname in chosen]


def _prefers(name: str, known: tuple[str, bool], *, is_link: bool) -> bool:
    return (not is_link and known[1]) or (is_link == known[1] and compare_names(known[0], name) < 0)


def _soname(image: Image, place: str, machine: int) -> str | None:
    real = image.resolve(place)
    found = image.entry(real)
    if found is None or found[0] == "d":
        return None
    library = read_library(image.read(real))
    if library is None or library.machine != machine:
        return None
    return library.soname or posixpath.basename(place)


def compare_names(a: str, b: str) -> int:
    """glibc's ``_dl_cache_libcmp``: digits count as numbers and come after other characters."""
    i = j = 0
    while i < len(a):
        if a[i].isdigit():
            if j >= len(b) or not b[j].isdigit():
                return 1
            left, right = _digits(a, i), _digits(b, j)
            if int(left) != int(right):
                return int(left) - int(right)
            i, j = i + len(left), j + len(right)
        elif j < len(b) and b[j].isdigit():
            return -1
        elif j >= len(b) or a[i] != b[j]:
            return ord(a[i]) - (ord(b[j]) if j < len(b) else 0)
        else:
            i, j = i + 1, j + 1
    return -ord(b[j]) if j < len(b) else 0


def _digits(text: str, start: int) -> str:
    end = start
    while end < len(text) and text[end].isdigit():
        end += 1
    return text[start:end]


def encode(entries: Sequence[CacheEntry], flags: int, generator: bytes) -> bytes:
    """The bytes of a cache; entries of the same name stay in the order of their directories."""
    ordered = sorted(entries, key=functools.cmp_to_key(_descending))
    strings, offsets = _string_table({s for e in ordered for s in (e.name, e.path)})
    start = _HEADER.size + _ENTRY.size * len(ordered)
    extension = -(-(start + len(strings)) // 4) * 4
    out = [_HEADER.pack(b"glibc-ld.so.cache", b"1.1", len(ordered), len(strings), 2, extension)]
    out += [_ENTRY.pack(flags, start + offsets[e.name], start + offsets[e.path], 0, 0) for e in ordered]
    out += [strings, bytes(extension - start - len(strings))]
    # One section, of kind 0 (generator): kind, flags, offset, size.
    out.append(struct.pack("<IIIIII", _EXTENSION_MAGIC, 1, 0, 0, extension + 24, len(generator)) + generator)
    return b"".join(out)


def _descending(x: CacheEntry, y: CacheEntry) -> int:
    return compare_names(y.name, x.name)


def _string_table(strings: set[str]) -> tuple[bytes, dict[str, int]]:
    """All strings, zero-terminated; one that is the tail of another lies inside it."""
    # Backwards in two ways: compared from the last character on, and so that the longer of two comes first.
    ordered = sorted(strings, key=lambda s: s.encode()[::-1], reverse=True)
    offsets: dict[str, int] = {}
    table, previous = bytearray(), ""
    for text in ordered:
        if previous and previous.endswith(text):
            offsets[text] = offsets[previous] + len(previous.encode()) - len(text.encode())
        else:
            offsets[text] = len(table)
            table += text.encode() + b"\0"
        previous = text
    return bytes(table), offsets


def _generator(image: Image, machine: int) -> bytes:
    """How this image's ldconfig names itself: the distribution's name of its glibc, and the version."""
    triplet = next(t for t, m in _MACHINE_OF.items() if m == machine)
    found = _GLIBC.search(image.read(f"usr/lib/{triplet}/libc.so.6"))
    if found is None:
        raise ValueError("libc.so.6 does not say which version it is")
    return b"ldconfig (%s) %s version %s" % (found[1], found[2], found[3])
