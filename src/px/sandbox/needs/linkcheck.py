"""The whole-image link check: does every ELF file of an image find its libraries and symbol versions?

Static: nothing is executed, so an arm64 image is checked on amd64 just the same.  What is missing stops the
build (PX902) only if it must fail at run time and px can say what to do; all else is a warning:

* fatal: an extension module, a program, or a library that those link to, which lacks a library that some
  capability brings, or a symbol version that a library in the image is too old for;
* warning: plugins and other files that a package loads only if it can, and libraries that px knows nothing
  of (another package's private libraries): the package may load them in a way of its own.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from px.engines.gpu.driver import is_library as comes_with_driver
from px.errors import PxError
from px.sandbox.needs import sonames
from px.sandbox.needs.inspection import is_script, required_paths
from px.sandbox.needs.merged import MUSL_ITSELF, Contents, Merged, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from px.home import Home
    from px.sandbox.needs.inspection import ElfFile

_PROGRAMS = ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/px/python/bin")
_SPELLED_OUT = 3  # capabilities in an error that get a line each
_LIBRARY, _VERSION, _INTERPRETER = "library", "version", "interpreter"


@dataclass(frozen=True)
class Problem:
    """Something that the loader would not find."""

    kind: str
    """``library``, ``version`` (of a symbol) or ``interpreter`` (the loader itself)."""
    missing: str
    file: str
    package: str | None
    """The Python distribution or system package that owns the file."""
    capability: str | None
    bases: tuple[str, ...]
    """The bases that have it, with that capability if there is one."""
    library: str | None
    """For a version: the library that is too old."""
    fatal: bool

    def __str__(self) -> str:
        owner = f" ({self.package})" if self.package else ""
        if self.kind == _VERSION:
            return f"/{self.file}{owner} needs {self.missing} of {self.library}, which is older here"
        return f"/{self.file}{owner} needs {self.missing}"


def check_layers(layers: Sequence[Contents], base: str, home: Home | None = None) -> tuple[Problem, ...]:
    """Check the image that the layers make, lowest first; fatal problems come first."""
    merged = merge(layers, home)
    checker = _Checker(merged, base)
    found = list(checker.problems())
    if found:
        found = list(_share(list(_judge(found, merged)), base))
    return tuple(sorted(found, key=lambda p: (not p.fatal, p.package or "", p.file, p.missing)))


class _Checker:
    """Finds what is missing, without yet saying how bad it is."""

    def __init__(self, merged: Merged, base: str):
        self.merged, self.base = merged, base
        self.defaults: dict[str, tuple[str, ...]] = {}
        self.found: dict[tuple[str, str, str, int], ElfFile | None] = {}

    def problems(self) -> Iterator[Problem]:
        for record in self.merged.records.values():
            if not record.elf.needed and record.elf.interpreter is None:
                continue
            if record.elf.interpreter and self.merged.at(record.elf.interpreter.lstrip("/")) is None:
                yield self._missing(record, _INTERPRETER, record.elf.interpreter)
            libraries = {soname: self.resolve(record, soname) for soname in record.elf.needed}
            for soname, library in libraries.items():
                # No image can bring the driver's own: it must be the one of the kernel that the image runs on.
                if library is None and not comes_with_driver(soname):
                    yield self._missing(record, _LIBRARY, soname)
            yield from self._versions(record, libraries)

    def resolve(self, record: ElfFile, soname: str) -> ElfFile | None:
        """Find a library as the loader would; the wrong architecture is passed over, as it does."""
        if "/" in soname:
            return self.merged.at(posixpath.normpath(soname).lstrip("/"))
        if MUSL_ITSELF.fullmatch(soname) and (musl := self.merged.musl(record.elf.machine)) is not None:
            return musl
        for directory in self.merged.search_path(record):
            found = self._in(directory, soname, record)
            if found is not None:
                return found
        machine = record.elf.machine
        key = ("", soname, machine, record.elf.bits)
        if key not in self.found:
            if machine not in self.defaults:
                self.defaults[machine] = self.merged.default_directories(machine)
            places = (self._in(directory, soname, record) for directory in self.defaults[machine])
            self.found[key] = next((place for place in places if place is not None), None)
        return self.found[key]

    def _in(self, directory: str, soname: str, record: ElfFile) -> ElfFile | None:
        found = self.merged.at(f"{directory}/{soname}")
        same = found is not None and (found.elf.machine, found.elf.bits) == (record.elf.machine, record.elf.bits)
        return found if same else None

    def _versions(self, record: ElfFile, libraries: Mapping[str, ElfFile | None]) -> Iterator[Problem]:
        if self.merged.musl(record.elf.machine) is not None:
            return  # its loader does not look at versions
        for soname, version in record.elf.version_needs:
            library = libraries.get(soname)
            # A library without any versions satisfies all: the loader only mutters.
            if library is None or not library.elf.versions or version in library.elf.versions:
                continue
            bases = tuple(base for base in sonames.bases_for_version(version) if base != self.base)
            yield Problem(_VERSION, version, record.path, None, None, bases, soname, fatal=True)

    def _missing(self, record: ElfFile, kind: str, name: str) -> Problem:
        owners = sonames.owners(name, self.base)
        bases = sonames.bases_with(name)
        return Problem(kind, name, record.path, None, owners[0] if owners else None, bases, None, fatal=True)


def _judge(problems: list[Problem], merged: Merged) -> Iterator[Problem]:
    """Name the owner of each file, drop what its package brings itself, and say what is fatal."""
    owners = owners_of(merged)
    groups: dict[str, list[ElfFile]] = {}
    for path, record in merged.records.items():
        groups.setdefault(owners.get(path, ""), []).append(record)
    required: dict[str, frozenset[str]] = {}
    for problem in problems:
        owner = owners.get(problem.file, "")
        distribution = owner.startswith("python:")
        if distribution and problem.kind == _LIBRARY and _brought(problem, groups[owner]):
            continue
        if owner not in required:
            required[owner] = _required(owner, groups[owner])
        known = problem.kind != _LIBRARY or bool(problem.bases or problem.capability)
        # Programs inside a package are often there for several systems (SpeechRecognition has flac for 32 bits too).
        known = known and not (distribution and problem.kind == _INTERPRETER and not is_script(problem.file))
        package = owner.partition(":")[2] or None
        yield replace(problem, package=package, fatal=known and problem.file in required[owner])


def _share(problems: list[Problem], base: str) -> Iterator[Problem]:
    """Where several capabilities bring a library, name one that is missing for another reason anyway."""
    owners = {p.missing: sonames.owners(p.missing, base) for p in problems}
    wanted = {owners[p.missing][0] for p in problems if p.fatal and len(owners[p.missing]) == 1}
    for problem in problems:
        chosen = next((name for name in owners[problem.missing] if name in wanted), problem.capability)
        yield replace(problem, capability=chosen)


def _brought(problem: Problem, group: list[ElfFile]) -> bool:
    """Whether the package has the library somewhere: then it loads it before (see ``inspection._inside``)."""
    return any(problem.missing in (r.elf.soname, posixpath.basename(r.path)) for r in group)


def _required(owner: str, group: list[ElfFile]) -> frozenset[str]:
    if owner.startswith("python:"):
        return required_paths(group)
    return frozenset(r.path for r in group if _is_system_essential(r))


def _is_system_essential(record: ElfFile) -> bool:
    """Programs, and libraries directly in a library directory; deeper down are plugins."""
    directory = posixpath.dirname(record.path)
    parts = directory.split("/")
    in_libraries = parts[:1] == ["lib"] or parts[:2] == ["usr", "lib"] or parts[:3] == ["usr", "local", "lib"]
    return directory in _PROGRAMS or (in_libraries and (parts[-1] == "lib" or parts[-1].endswith("-linux-gnu")))


def owners_of(merged: Merged) -> dict[str, str]:
    """Path -> ``python:NAME`` by the RECORDs in the image, ``system:NAME`` by the database of dpkg or apk."""
    owners: dict[str, str] = {}
    for path in merged.files:
        if path.endswith(".dist-info/RECORD"):
            directory, _, info = posixpath.dirname(path).rpartition("/")
            name = info.removesuffix(".dist-info").partition("-")[0].replace("_", "-")
            for line in merged.read(path).splitlines():
                owners[posixpath.normpath(posixpath.join(directory, _record_path(line)))] = f"python:{name}"
        elif path.endswith((".md5sums", ".list")):
            name = posixpath.basename(path).rpartition(".")[0].partition(":")[0]
            for line in merged.read(path).splitlines():
                real = merged.canonical(line.rpartition("  ")[2].lstrip("/"))
                owners.setdefault(real or line, f"system:{name}")
        elif path == "lib/apk/db/installed":
            owners |= {real: f"system:{name}" for real, name in _apk_files(merged.read(path))}
    return owners


def _apk_files(database: str) -> Iterator[tuple[str, str]]:
    """(path, package): ``P:`` names a package, ``F:`` a directory of it, and ``R:`` a file in that."""
    name = directory = ""
    for line in database.splitlines():
        kind, value = line[:2], line[2:]
        if kind == "P:":
            name = value
        elif kind == "F:":
            directory = value
        elif kind == "R:":
            yield posixpath.join(directory, value), name


def _record_path(line: str) -> str:
    # path,hash,size; a path with a comma in it is quoted
    return line[1:].partition('"')[0] if line.startswith('"') else line.partition(",")[0]


def excuse(problems: Sequence[Problem], disabled: frozenset[str]) -> tuple[Problem, ...]:
    """What the manifest rules out by name is missing on purpose: the manifest wins over all that px thinks it knows."""
    return tuple(replace(p, fatal=p.fatal and p.capability not in disabled) for p in problems)


def link_error(problems: Sequence[Problem], base: str) -> PxError | None:
    """The PX902 for the fatal problems, or None if there are none."""
    fatal = [problem for problem in problems if problem.fatal]
    if not fatal:
        return None
    names = list(dict.fromkeys(problem.missing for problem in fatal))
    why = [str(problem) for problem in fatal[:8]]
    if len(fatal) > len(why):
        why.append(f"… and {len(fatal) - len(why)} more")
    capabilities = sorted({p.capability for p in fatal if p.capability})
    fix = [*_fixes(fatal, capabilities, base)]
    return PxError("PX902", missing=", ".join(names), why=why, fix=fix, capabilities=capabilities)


def _fixes(fatal: Sequence[Problem], capabilities: Sequence[str], base: str) -> Iterator[str]:
    if capabilities:
        yield f"Run: px sandbox add {' '.join(capabilities)}"
        if len(capabilities) > _SPELLED_OUT:
            yield f"Or set each of them to true in [tool.px.sandbox.capabilities]: {', '.join(capabilities)}"
        else:
            yield from (f"Or set [tool.px.sandbox.capabilities].{name} = true" for name in capabilities)
        yield f"If it can do without: set [tool.px.sandbox.capabilities].{capabilities[0]} = false"
    for problem in {p.missing: p for p in fatal}.values():
        others, owner = [name for name in problem.bases if name != base], problem.package or problem.file
        if problem.capability is None and others:
            yield f'For {problem.missing}, set [tool.px.sandbox].base = "{others[0]}", which has it'
        elif problem.capability is None and problem.kind == _VERSION and sonames.knows_version(problem.missing):
            yield f"No base of this px has {problem.missing}: choose an older version of {owner}"
        elif problem.capability is None and problem.kind == _VERSION:
            yield f"Choose an older {owner}, or a base with a newer {problem.library}: [tool.px.sandbox].base"
        elif problem.kind == _INTERPRETER:
            yield f"{problem.file} was made for another system: use another version or wheel of {problem.package}"
