"""An image as the loader sees it: layers over each other, symbolic links followed, libraries found by name."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from px.sandbox.needs.inspection import ElfFile, cached_index, index_tree
from px.store.tree import native
from px.warm.links import follow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from px.home import Home
    from px.store.tree import Entry

_MUSL = ("/lib", "/usr/local/lib", "/usr/lib")
# musl's loader is the library itself, for any file of one of these names (`load_library` in its ldso/dynlink.c).
MUSL_ITSELF = re.compile(r"lib(?:c|pthread|rt|m|dl|util|xnet)\..*")
_TEXTS = ("etc/ld.so.conf", "etc/ld-musl-", "var/lib/dpkg/", "lib/apk/db/installed")


@dataclass(frozen=True)
class Contents:
    """The files of one layer; ``key`` names them in the cache if they never change (an oid)."""

    root: Path
    spec: Sequence[Entry]
    key: str | None = None

    def records(self, home: Home | None) -> tuple[ElfFile, ...]:
        if home is None or self.key is None:
            return index_tree(self.root, self.spec)
        return cached_index(home, self.key, self.root, self.spec)


@dataclass
class Merged:
    """The merged image: what is at each path that matters to the loader."""

    records: dict[str, ElfFile] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    layer_of: dict[str, int] = field(default_factory=dict)
    roots: list[Path] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    """Small text files that say where the loader looks and who owns what -> the layer that has them."""
    _real: dict[str, str | None] = field(default_factory=dict)

    def canonical(self, path: str) -> str | None:
        """The path with every symbolic link in it followed, or None if links lead out or in circles."""
        if path not in self._real:
            self._real[path] = follow(path, self.links.get)
        return self._real[path]

    def at(self, path: str) -> ElfFile | None:
        real = self.canonical(path)
        return self.records.get(real) if real is not None else None

    def search_path(self, record: ElfFile) -> Iterator[str]:
        """Where the loader looks for what ``record`` needs, apart from the default directories."""
        origin = posixpath.dirname(record.path)
        machine = record.elf.machine
        for entry in record.elf.runpath or record.elf.rpath:
            expanded = entry.replace("{ORIGIN}", "ORIGIN").replace("$ORIGIN", "/" + origin)
            expanded = expanded.replace("$LIB", f"lib/{machine}-linux-gnu").replace("$PLATFORM", machine)
            yield posixpath.normpath(expanded).lstrip("/")

    def musl(self, machine: str) -> ElfFile | None:
        """musl's loader, which is its C library too, if the image has it."""
        return self.at(f"lib/ld-musl-{machine}.so.1")

    def default_directories(self, machine: str) -> tuple[str, ...]:
        if self.musl(machine) is not None:
            return self._musl_directories(machine)
        triplet = f"{machine}-linux-gnu"
        usual = ("usr/local/lib", "lib", "usr/lib", "lib64", "usr/lib64")
        found = (f"usr/local/lib/{triplet}", f"lib/{triplet}", f"usr/lib/{triplet}", *usual, *self._configured())
        return tuple(dict.fromkeys(found))

    def _musl_directories(self, machine: str) -> tuple[str, ...]:
        # ldso(8): this file, if it is there, takes the place of the built-in list.
        path = f"etc/ld-musl-{machine}.path"
        told = re.split(r"[:\n]", self.read(path)) if path in self.files else _MUSL
        return tuple(dict.fromkeys(place.strip().strip("/") for place in told if place.strip()))

    def _configured(self) -> Iterator[str]:
        for path in sorted(self.files):
            if path.startswith("etc/ld.so.conf"):
                for line in self.read(path).splitlines():
                    if line.startswith("/"):
                        yield line.strip().strip("/")

    def read(self, path: str) -> str:
        with open(native(self.roots[self.files[path]], path), "rb") as f:
            return f.read().decode("utf-8", "replace")


def merge(layers: Sequence[Contents], home: Home | None = None) -> Merged:
    """Lay the layers over each other, lowest first."""
    merged = Merged()
    for number, layer in enumerate(layers):
        merged.roots.append(layer.root)
        _add(merged, number, layer.spec, {record.path: record for record in layer.records(home)})
    return merged


def _add(merged: Merged, number: int, spec: Iterable[Entry], records: dict[str, ElfFile]) -> None:
    for entry in spec:
        kind, path = entry[0], str(entry[1])
        if kind == "d":
            merged.links.pop(path, None)  # a directory of a higher layer replaces a link
            continue
        merged.records.pop(path, None)
        merged.links.pop(path, None)
        merged.files.pop(path, None)
        if kind == "l":
            merged.links[path] = str(entry[2])
            continue
        record = records.get(path if kind == "f" else str(entry[2]))
        if record is not None:
            merged.records[path] = record if kind == "f" else ElfFile(path, record.elf)
            merged.layer_of[path] = number
        elif path.startswith(_TEXTS) or path.endswith(".dist-info/RECORD"):
            merged.files[path] = number


def base_sonames(layers: Sequence[Contents], machine: str, home: Home | None = None) -> frozenset[str]:
    """The libraries that any program in a base finds without further ado, by the names it would ask for."""
    merged = merge(layers, home)
    directories = {merged.canonical(d) for d in merged.default_directories(machine)}
    names = [*merged.records, *merged.links]
    own = (f"libc.musl-{machine}.so.1", "libc.so") if merged.musl(machine) else ()
    return frozenset(own) | frozenset(
        posixpath.basename(path)
        for path in names
        if ".so" in path and posixpath.dirname(path) in directories and _is_library(merged.at(path), machine)
    )


def _is_library(record: ElfFile | None, machine: str) -> bool:
    return record is not None and record.elf.machine == machine
