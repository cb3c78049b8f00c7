"""Writes ``/etc/ld.so.cache``, byte for byte as ldconfig does.

The loader also works without a cache, but ``ctypes.util.find_library`` needs it, and programs in large images start
faster with one.  The format is that of glibc 2.32 and later (its sysdeps/generic/dl-cache.h): a header, entries in
descending order, strings whose tails are shared, and an extension that names the generator.
"""

from __future__ import annotations

import functools
import posixpath
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.elf import parse_elf
from px.platforms import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

CACHE = "etc/ld.so.cache"
# The directories that glibc searches after those in ld.so.conf.  Debian's glibc does not have /lib64 here.
_SYSTEM = ("/lib", "/usr/lib")
_NAME = re.compile(r"(?:lib|ld-).*\.so")
# Magic, version, number of entries, length of the strings, flags (2: little-endian), offset of the extension.
_HEADER = struct.Struct("<17s3sIIB3xI12x")
# Flags, offset of the name, offset of the path, and two fields that are 0 here (OS version, hardware capabilities).
_ENTRY = struct.Struct("<iIIIQ")
_EXTENSION_MAGIC = 0xEAA42174
# What `libc.so.6` prints when it is run, found in its bytes.
_GLIBC = re.compile(rb"GNU C Library \((.+?)\) ((?:stable|development) release) version (\d+\.\d+)")


@dataclass(frozen=True)
class CacheEntry:
    """The name of a library and its path."""

    name: str
    path: str


def ld_cache(image: Image, _: Sequence[Unpacked]) -> None:
    """Write the cache, and the links from sonames to files that packages expect ldconfig to make.

    It must run last, because it looks at every library in the image.
    """
    of = next(one for one in ARCHITECTURES.values() if f"usr/lib/{one.triplet}" in image)
    entries = [entry for directory in _directories(image) for entry in _libraries(image, directory, of.machine)]
    image.file(CACHE, encode(entries, of.cache_flags, _generator(image, of.triplet)))


def _directories(image: Image) -> list[str]:
    # With merged /usr, /lib and /usr/lib are one directory.  The first spelling counts: it is in the cache's paths.
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


def _libraries(image: Image, directory: str, machine: str) -> list[CacheEntry]:
    """The libraries of one directory, by ldconfig's rules (search_dir in its source)."""
    root = directory.lstrip("/")
    chosen: dict[str, tuple[str, bool]] = {}
    for name in image.listing(root):
        if _NAME.match(name) is None:
            continue
        place = image.place(f"{root}/{name}")
        soname = _soname(image, place, machine)
        if soname is None:
            continue
        # A link counts as one only if it is the soname itself (libz.so.1), or the name for the linker (libz.so).
        # Any other link is treated as the file that it leads to.
        is_link = image.entry(place)[0] == "l"  # type: ignore[index]
        if is_link and name != soname:
            is_link = name.endswith(".so") and soname.startswith(name)
        key = name if is_link else soname
        known = chosen.get(key)
        if known is None or _prefers(name, known, is_link=is_link):
            chosen[key] = (name, is_link)
    for soname, (name, is_link) in chosen.items():
        # ldconfig makes this link too: some packages ship libfoo.so.1.2 without libfoo.so.1.
        if not is_link and f"{root}/{soname}" not in image:
            image.link(f"{root}/{soname}", name)
    return [CacheEntry(soname, f"{directory}/{soname}") for soname in chosen]


def _prefers(name: str, known: tuple[str, bool], *, is_link: bool) -> bool:
    # A file is better than a link.  Of two files, or two links, the one with the higher version is better.
    return (not is_link and known[1]) or (is_link == known[1] and compare_names(known[0], name) < 0)


def _soname(image: Image, place: str, machine: str) -> str | None:
    real = image.resolve(place)
    found = image.entry(real)
    if found is None or found[0] == "d":
        return None
    library = parse_elf(image.read(real))
    # Libraries of other architectures, and linker scripts, which are text files called .so, are not listed.
    if library is None or library.machine != machine:
        return None
    return library.soname or posixpath.basename(place)


def compare_names(a: str, b: str) -> int:
    """glibc's ``_dl_cache_libcmp``: digits are compared as numbers and sort after other characters."""
    # The loader does a binary search in the cache with this order, so it must be exactly glibc's.
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
    """The bytes of a cache.  Entries of the same name keep the order of their directories."""
    ordered = sorted(entries, key=functools.cmp_to_key(_descending))
    strings, offsets = _string_table({s for e in ordered for s in (e.name, e.path)})
    start = _HEADER.size + _ENTRY.size * len(ordered)
    # The extension starts at a multiple of four.
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
    """All strings, each ended by a zero byte.  A string that is the tail of another one has no bytes of its own."""
    # Sorted by the reversed text, in descending order: a string then follows the longer one whose tail it is.
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


def _generator(image: Image, triplet: str) -> bytes:
    """The name and version that the image's own ldconfig would write into the cache."""
    found = _GLIBC.search(image.read(f"usr/lib/{triplet}/libc.so.6"))
    if found is None:
        raise ValueError("libc.so.6 does not say which version it is")
    return b"ldconfig (%s) %s version %s" % (found[1], found[2], found[3])
