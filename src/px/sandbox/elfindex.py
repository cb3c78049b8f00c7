"""The ELF files of a tree: read once, kept by the id of the object that the tree belongs to."""

from __future__ import annotations

import json
import re
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from px.sandbox.elf import Elf, read_elf
from px.store.files import write_atomically
from px.store.tree import native

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from px.home import Home
    from px.store.tree import Entry

FORMAT = 1  # of the cached files: raised when Elf or Record changes
# Never ELF, and most of a Python tree: not worth opening.
_TEXT = re.compile(
    r"\.(py[ixc]?|pxd|txt|md|rst|json|toml|ya?ml|cfg|ini|csv|html|css|js|ts|map|xml|svg|png|jpg|gif|ttf|h|hpp|hh|hxx|cuh"
    r"|inl|c|cc|cpp|cu|f|f90|cmake|pc|typed|np[yz]|gz|zip|tcl|qml|qm|mo|po|sh|in|am|a)$",
    re.IGNORECASE,
)
_SMALLEST = 64  # bytes: an ELF header


@dataclass(frozen=True)
class Record:
    """One executable or shared object and its place in the tree."""

    path: str
    elf: Elf


def index_tree(root: Path, spec: Iterable[Entry]) -> tuple[Record, ...]:
    """Read every ELF file of a tree, in the order of the spec."""
    found = []
    for entry in spec:
        if entry[0] != "f" or int(entry[3]) < _SMALLEST or _TEXT.search(str(entry[1])):
            continue
        elf = read_elf(native(root, str(entry[1])))
        if elf is not None:
            found.append(Record(str(entry[1]), elf))
    return tuple(found)


def cached_index(home: Home, key: str, root: Path, spec: Sequence[Entry]) -> tuple[Record, ...]:
    """The index of the immutable tree that ``key`` names; read from the cache if it was made before."""
    path = home.cache / f"elf-{FORMAT}" / key
    try:
        return tuple(_record(row) for row in json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError):
        pass  # not there, or not readable any more: a cache is made again, never repaired
    records = index_tree(root, spec)
    content = json.dumps([[r.path, *astuple(r.elf)] for r in records], separators=(",", ":"))
    write_atomically(path, content.encode(), durable=False)
    return records


def _record(row: list[Any]) -> Record:
    path, machine, bits, interpreter, soname, needed, rpath, runpath, version_needs, versions = row
    pairs = tuple((library, version) for library, version in version_needs)
    paths = (tuple(needed), tuple(rpath), tuple(runpath))
    return Record(path, Elf(machine, bits, interpreter, soname, *paths, pairs, tuple(versions)))
