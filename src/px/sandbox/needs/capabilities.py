"""Capabilities: names for what a project can need from the operating system.

The table is ``data/capabilities.toml``: per capability and base, the packages that go into images
(``runtime``) and those that only the builder sandbox gets (``build``).
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from px import DATA
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class PackageSet:
    """The packages of one capability on one base, by name; the base's lock has the versions."""

    runtime: tuple[str, ...]
    build: tuple[str, ...]


@dataclass(frozen=True)
class Capability:
    """One row of the table."""

    name: str
    summary: str
    aliases: tuple[str, ...]
    packages: Mapping[str, PackageSet]
    """Base name -> packages; a base that is not here cannot have this capability."""


@cache
def table() -> Mapping[str, Capability]:
    """Every capability by name, in the order of the names."""
    with open(f"{DATA}/capabilities.toml", "rb") as f:
        raw = tomllib.load(f)
    return {name: _capability(name, dict(raw[name])) for name in sorted(raw)}


def _capability(name: str, row: dict[str, Any]) -> Capability:
    summary, aliases = str(row.pop("summary")), row.pop("aliases", [])
    return Capability(name, summary, tuple(aliases), {base: _packages(lists) for base, lists in sorted(row.items())})


def _packages(lists: Mapping[str, list[str]]) -> PackageSet:
    return PackageSet(tuple(sorted(lists["runtime"])), tuple(sorted(lists["build"])))


def nearest(name: str) -> str | None:
    """The capability that was probably meant, by its own name or by what people call it."""
    known = {alias: row.name for row in table().values() for alias in (*row.aliases, row.name)}
    found = difflib.get_close_matches(canonicalize_name(name), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None


def find(name: str, base: str) -> Capability:
    """The capability called ``name``, which ``base`` must have; anything else is PX901."""
    capability = table().get(canonicalize_name(name))
    if capability is None:
        raise unknown(name, base)
    if base not in capability.packages:
        have = ", ".join(capability.packages)
        problem = "px has no packages for it on this base."
        raise PxError("PX901", capability=name, base=base, problem=problem, why=[f"It is available on: {have}"])
    return capability


def unknown(name: str, base: str, where: str = "") -> PxError:
    """The error for a name that is not in the table; ``where`` is the file and line that has it."""
    near = nearest(name)
    why = [f"{where} names it."] if where else []
    fix = [f"Did you mean {near!r}? ({table()[near].summary})"] if near else []
    fix.append("See all of them: px sandbox list")
    problem = "there is no capability of that name."
    return PxError("PX901", capability=name, base=base, problem=problem, why=why, fix=fix, whole_fix=True)


def packages(names: Iterable[str], base: str, *, build: bool = False) -> tuple[str, ...]:
    """The package names that a set of capabilities brings to a base, sorted; ``build`` adds the headers."""
    found: set[str] = set()
    for name in names:
        lists = find(name, base).packages[base]
        found.update(lists.runtime)
        if build:
            found.update(lists.build)
    return tuple(sorted(found))
