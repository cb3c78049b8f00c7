"""Error messages that mean "the system lacks something", matched to capabilities (``data/patterns.toml``).

Used on what a failed build or run printed: the text is searched line by line, and every line that names a
missing library, header or program gives a suggestion.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from px.errors import PxError
from px.sandbox import sonames
from px.sandbox.capabilities import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LONGEST = 2000  # characters of one line: minified output and progress bars are not messages
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Suggestion:
    """One line of output, understood."""

    capability: str
    missing: str
    kind: str
    """library, header, program, linker, pkgconfig or module"""
    line: str


@dataclass(frozen=True)
class Pattern:
    """One row: the kind of thing that its group ``name`` names, unless the message alone decides."""

    kind: str
    regex: re.Pattern[str]
    capability: str | None


@dataclass(frozen=True)
class Patterns:
    """The data file, compiled."""

    hints: re.Pattern[str]
    """What every line that can match has somewhere."""
    patterns: tuple[Pattern, ...]
    limits: tuple[tuple[re.Pattern[str], str], ...]
    """What a log says where a build cannot succeed in the builder sandbox, and why not."""
    undeclared: re.Pattern[str]
    """What a log says where a build tool that it did not require is missing."""
    tables: Mapping[str, Mapping[str, str]]


@cache
def load() -> Patterns:
    import tomllib

    with (DATA / "patterns.toml").open("rb") as f:
        raw = tomllib.load(f)
    rows = tuple(Pattern(r["kind"], re.compile(r["regex"]), r.get("capability")) for r in raw.pop("pattern"))
    limits = tuple((re.compile(r["regex"]), str(r["why"])) for r in raw.pop("limit"))
    hints = re.compile("|".join(map(re.escape, raw.pop("hints"))), re.IGNORECASE)
    return Patterns(hints, rows, limits, re.compile(raw.pop("undeclared"), re.MULTILINE), raw)


def match(text: str, base: str = "debian-12") -> tuple[Suggestion, ...]:
    """Every capability that the text asks for, once each, in the order in which it asks."""
    found: dict[str, Suggestion] = {}
    for pattern, name, line in _hits(text):
        capability = pattern.capability or capability_of(pattern.kind, name, base)
        if capability is not None:
            found.setdefault(capability, Suggestion(capability, name, pattern.kind, line.strip()))
    return tuple(found.values())


def without_capability(text: str, base: str) -> tuple[str, ...]:
    """Headers, libraries and pkg-config names that the text misses and no capability brings, in its order."""
    found = dict.fromkeys(
        name
        for pattern, name, _ in _hits(text)
        if pattern.kind in ("header", "linker", "pkgconfig")
        and not pattern.capability
        and capability_of(pattern.kind, name, base) is None
    )
    # A header that the source includes with quotes is its own, which some other mistake hides; but Cython quotes all.
    return tuple(name for name in found if f'#include "{name}"' not in text or "Cythonizing" in text)


def undeclared(text: str) -> tuple[str, str] | None:
    """What a failed build used without requiring it: the program or module, and the Python package that has it."""
    found = load().undeclared.search(text)
    if found is None:
        return None
    module = found["module"]
    name = module or next(name for name in found.groups() if name)
    requirement = load().tables["requirements"].get(name) if module else name
    return (name, requirement) if requirement else None


def limits(text: str) -> tuple[str, ...]:
    """Why a build can never succeed in the builder sandbox, where its log shows that."""
    return tuple(why for regex, why in load().limits if regex.search(text))


def missing_error(found: Sequence[Suggestion], why: Sequence[str]) -> PxError:
    """The PX902 for what a build or a run said was missing, with the command that brings each capability."""
    names = sorted({s.capability for s in found})
    fix = [f"Run 'px sandbox add {n}' or set [tool.px.sandbox.capabilities].{n} = true." for n in names]
    missing = ", ".join(sorted({s.missing for s in found}))
    return PxError("PX902", missing=missing, why=why, fix=fix, capabilities=names)


def _hits(text: str) -> Iterator[tuple[Pattern, str, str]]:
    """(pattern, what is missing, line), in the order of the text."""
    for line in text.splitlines():
        if load().hints.search(line) is None:
            continue
        plain = _ESCAPES.sub("", line)[:_LONGEST]
        for pattern in load().patterns:
            for hit in pattern.regex.finditer(plain):
                yield pattern, hit.group("name"), plain


def capability_of(kind: str, name: str, base: str) -> str | None:
    """The capability that brings a missing thing, or None if px knows none."""
    tables = load().tables
    if kind == "library":
        return _library(name, base)
    if kind == "header":
        return _header(name)
    if kind == "linker":
        return tables["linker"].get(name) or _library("lib" + name, base)
    if kind == "program":
        return tables["programs"].get(posixpath.basename(name))
    return tables["modules" if kind == "module" else "pkgconfig"].get(name)


def _library(name: str, base: str) -> str | None:
    """By exact SONAME, then by the words packages use, then by the name in any version."""
    exact = sonames.owners(name, base)
    if exact:
        return exact[0]
    spoken = load().tables["libraries"].get(name) or load().tables["libraries"].get(name.lower())
    if spoken:
        return spoken
    wanted = name if name.startswith("lib") else "lib" + name
    near = sonames.by_stem(wanted, base) or sonames.by_stem(wanted.lower(), base)
    return near[0][0] if near else None


def _header(name: str) -> str | None:
    table = load().tables["headers"]
    directory, _, file = name.rpartition("/")
    # The whole name first (sys/acl.h), then the directory (openssl/ssl.h), then the file alone.
    return table.get(name) or table.get(directory.partition("/")[0] + "/") or (None if directory else table.get(file))
