"""What one pkg-build asks of the system: its ELF files, resolved inside its own tree as the loader would.

A wheel's files are not equal.  An extension module that lacks a library cannot be imported; a plugin that
lacks one is simply not available, and wheels are full of those (Qt's database drivers, CUDA providers,
alternative builds).  So every need is either *required* or optional:

* extension modules and programs in ``bin/`` are roots, and all that they link to is required;
* a package without any extension module loads its libraries with ctypes: there every ELF file is a root;
* what lies below a directory called plugins, tests or the like never is.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from px.sandbox.elfindex import Record, cached_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from px.store.objects import Store
    from px.store.tree import Entry

_EXTENSION = re.compile(r"(\.(cpython|abi3|pypy|graalpy)[^/]*|^(?!lib)[A-Za-z_]\w*)\.so$")
# deploy_libs: what panda3d puts into programs that it packs, modules of other Pythons' standard library among it.
_OPTIONAL = frozenset(("plugin", "plugins", "test", "tests", "testing", "examples", "demos", "deploy_libs"))


@dataclass(frozen=True)
class Need:
    """A library that a file of the package needs and the package does not bring."""

    file: str
    soname: str
    required: bool
    machine: str
    search: tuple[str, ...]
    """Directories of the env (as paths in the tree) where RPATH or RUNPATH make the loader look first."""


@dataclass(frozen=True)
class Inspection:
    """What a package needs from outside, and the shared objects that others may find in it."""

    needs: tuple[Need, ...]
    provides: tuple[tuple[str, str], ...]
    """(machine, path) of each shared object."""


def inspect_pkg_build(store: Store, oid: str) -> Inspection:
    """Inspect a pkg-build; its ELF files are read once and kept by oid."""
    payload = store.payload("pkg-build", oid)
    spec = cast("list[Entry]", payload["tree"])
    return inspect_records(cached_index(store.home, oid, store.tree("pkg-build", oid), spec))


def inspect_records(records: Sequence[Record]) -> Inspection:
    by_path = {record.path: record for record in records}
    by_name = _by_name(records)
    required = required_paths(records)
    needs = [
        Need(record.path, soname, record.path in required, record.elf.machine, search_path(record))
        for record in records
        for soname in record.elf.needed
        if not _inside(record, soname, by_path, by_name)
    ]
    provides = [(r.elf.machine, r.path) for r in records if ".so" in posixpath.basename(r.path)]
    return Inspection(tuple(needs), tuple(provides))


def required_paths(records: Sequence[Record]) -> frozenset[str]:
    """The files of one package that must load for the package to work."""
    by_path = {record.path: record for record in records}
    by_name = _by_name(records)
    has_modules = any(is_extension_module(record.path) and not is_optional(record.path) for record in records)
    pending = [r for r in records if not is_optional(r.path) and (not has_modules or _is_root(r))]
    found = {record.path for record in pending}
    while pending:
        record = pending.pop()
        for soname in record.elf.needed:
            for target in _inside(record, soname, by_path, by_name):
                if target.path not in found:
                    found.add(target.path)
                    pending.append(target)
    return frozenset(found)


def is_extension_module(path: str) -> bool:
    return _EXTENSION.search(posixpath.basename(path)) is not None


def is_optional(path: str) -> bool:
    return not _OPTIONAL.isdisjoint(path.lower().split("/")[:-1])


def _is_root(record: Record) -> bool:
    return is_extension_module(record.path) or (record.elf.interpreter is not None and is_script(record.path))


def is_script(path: str) -> bool:
    """Whether it lies in the env's bin directory: ``bin/x`` in a pkg-build, ``…/bin/x`` in an image."""
    directory = posixpath.dirname(path)
    inside_a_package = path.startswith("lib/") or "/site-packages/" in path
    return directory == "bin" or (directory.endswith("/bin") and not inside_a_package)


def _by_name(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        for name in {posixpath.basename(record.path), record.elf.soname or ""} - {""}:
            found.setdefault(name, []).append(record)
    return found


def _inside(
    record: Record, soname: str, by_path: Mapping[str, Record], by_name: Mapping[str, list[Record]]
) -> list[Record]:
    """The files of the same package that satisfy a need.

    First as the loader looks: RPATH or RUNPATH.  Then by SONAME alone, because a package that brings a
    library outside of those loads it itself before its modules (ctypes in ``__init__``), and the loader
    takes what is already loaded.
    """
    for directory in search_path(record):
        found = by_path.get(posixpath.join(directory, soname))
        if found is not None and _fits(record, found):
            return [found]
    return [found for found in by_name.get(soname, ()) if _fits(record, found) and found.path != record.path]


def _fits(record: Record, candidate: Record) -> bool:
    return (record.elf.machine, record.elf.bits) == (candidate.elf.machine, candidate.elf.bits)


def search_path(record: Record) -> tuple[str, ...]:
    """The directories of RPATH (ignored where there is a RUNPATH, as the loader does) that lie in the tree."""
    origin = posixpath.dirname(record.path)
    found = []
    for entry in record.elf.runpath or record.elf.rpath:
        expanded = entry.replace("${ORIGIN}", "$ORIGIN")
        if expanded == "$ORIGIN" or expanded.startswith("$ORIGIN/"):
            path = posixpath.normpath(posixpath.join(origin, "." + expanded.removeprefix("$ORIGIN")))
            if path != ".." and not path.startswith("../"):
                found.append(path)
    return tuple(found)
