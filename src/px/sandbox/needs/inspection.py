"""What one pkg-build asks of the system: its ELF files, resolved inside its own tree as the loader would.

A wheel's files are not equal.  An extension module that lacks a library cannot be imported; a plugin that
lacks one is simply not available, and wheels are full of those (Qt's database drivers, CUDA providers,
alternative builds).  So every need is either *required* or optional:

* extension modules and programs in ``bin/`` are roots, and all that they link to is required;
* a package without any extension module loads its libraries with ctypes, or others link to them: there every ELF
  file is a root, except for plugins by their name: nobody can link to ``nvshmem_transport_ucx.so.7``, which is no
  ``lib…``, and no module either; it is opened by name where its transport is wanted;
* what lies below a directory called plugins, tests or the like never is.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, cast

from px.elf import Elf, read_elf
from px.store.files import write_atomically
from px.store.tree import native

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from px.home import Home
    from px.store.objects import Store
    from px.store.tree import Entry

# Never ELF, and most of a Python tree: not worth opening.
_TEXT = re.compile(
    r"\.(py[ixc]?|pxd|txt|md|rst|json|toml|ya?ml|cfg|ini|csv|html|css|js|ts|map|xml|svg|png|jpg|gif|ttf|h|hpp|hh|hxx|cuh"
    r"|inl|c|cc|cpp|cu|f|f90|cmake|pc|typed|np[yz]|gz|zip|tcl|qml|qm|mo|po|sh|in|am|a)$",
    re.IGNORECASE,
)
_SMALLEST = 64  # bytes: an ELF header


@dataclass(frozen=True)
class ElfFile:
    """One executable or shared object and its place in the tree."""

    path: str
    elf: Elf


def index_tree(root: Path, spec: Iterable[Entry]) -> tuple[ElfFile, ...]:
    """Read every ELF file of a tree, in the order of the spec."""
    found = []
    for entry in spec:
        if entry[0] != "f" or int(entry[3]) < _SMALLEST or _TEXT.search(str(entry[1])):
            continue
        elf = read_elf(native(root, str(entry[1])))
        if elf is not None:
            found.append(ElfFile(str(entry[1]), elf))
    return tuple(found)


def cached_index(home: Home, key: str, root: Path, spec: Sequence[Entry]) -> tuple[ElfFile, ...]:
    """The index of the immutable tree that ``key`` names; read from the cache if it was made before."""
    path = home.cache("elf") / key
    try:
        return tuple(_record(row) for row in json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError):
        pass  # not there, or not readable any more: a cache is made again, never repaired
    records = index_tree(root, spec)
    content = json.dumps([[r.path, *astuple(r.elf)] for r in records], separators=(",", ":"))
    write_atomically(path, content.encode(), durable=False)
    return records


def _record(row: list[Any]) -> ElfFile:
    path, machine, bits, interpreter, soname, needed, rpath, runpath, version_needs, versions = row
    pairs = tuple((library, version) for library, version in version_needs)
    paths = (tuple(needed), tuple(rpath), tuple(runpath))
    return ElfFile(path, Elf(machine, bits, interpreter, soname, *paths, pairs, tuple(versions)))


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


def inspect_records(records: Sequence[ElfFile]) -> Inspection:
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


def required_paths(records: Sequence[ElfFile]) -> frozenset[str]:
    """The files of one package that must load for the package to work."""
    by_path = {record.path: record for record in records}
    by_name = _by_name(records)
    has_modules = any(is_extension_module(record.path) and not is_optional(record.path) for record in records)
    candidates = [r for r in records if not is_optional(r.path)]
    if has_modules:
        pending = [r for r in candidates if _is_root(r)]
    else:
        pending = [r for r in candidates if not _is_plugin(r)] or candidates
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


def _is_root(record: ElfFile) -> bool:
    return is_extension_module(record.path) or (record.elf.interpreter is not None and is_script(record.path))


def _is_plugin(record: ElfFile) -> bool:
    name = posixpath.basename(record.path)
    return record.elf.interpreter is None and ".so." in name and not name.startswith("lib")


def is_script(path: str) -> bool:
    """Whether it lies in the env's bin directory: ``bin/x`` in a pkg-build, ``…/bin/x`` in an image."""
    directory = posixpath.dirname(path)
    inside_a_package = path.startswith("lib/") or "/site-packages/" in path
    return directory == "bin" or (directory.endswith("/bin") and not inside_a_package)


def _by_name(records: Iterable[ElfFile]) -> dict[str, list[ElfFile]]:
    found: dict[str, list[ElfFile]] = {}
    for record in records:
        for name in {posixpath.basename(record.path), record.elf.soname or ""} - {""}:
            found.setdefault(name, []).append(record)
    return found


def _inside(
    record: ElfFile, soname: str, by_path: Mapping[str, ElfFile], by_name: Mapping[str, list[ElfFile]]
) -> list[ElfFile]:
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


def _fits(record: ElfFile, candidate: ElfFile) -> bool:
    return (record.elf.machine, record.elf.bits) == (candidate.elf.machine, candidate.elf.bits)


def search_path(record: ElfFile) -> tuple[str, ...]:
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
