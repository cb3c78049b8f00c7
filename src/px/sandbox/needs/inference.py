"""From a locked env to the capabilities that it needs: pure, deterministic, every result with its reasons.

Two sources (the third, error messages, is :mod:`px.sandbox.needs.patterns`):

* the lock: distributions that open libraries or run programs by name, and sdists that are built against
  system libraries (``data/distributions.toml``);
* the files: what the ELF files of each pkg-build need and neither the env nor the base has.
"""

from __future__ import annotations

import posixpath
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from px import DATA
from px.sandbox.needs import sonames
from px.sandbox.needs.capabilities import table
from px.sandbox.needs.inspection import inspect_pkg_build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from px.sandbox.needs.inspection import Inspection, Need
    from px.store.objects import Store


@dataclass(frozen=True)
class LockedPackage:
    """One package of the env, as far as inference cares."""

    name: str
    version: str
    pkg_build_oid: str | None
    from_sdist: bool
    """The lock's artifact is an sdist, which px builds; otherwise it is a wheel, taken as it is."""


@dataclass(frozen=True)
class Reason:
    """Why a capability is needed."""

    source: str
    """``lock`` (the static map) or ``elf`` (a file's DT_NEEDED)."""
    package: str
    version: str
    text: str
    file: str | None = None
    soname: str | None = None


@dataclass(frozen=True)
class Unknown:
    """A library that an extension needs and px knows no capability for; the image check has the last word."""

    package: str
    file: str
    soname: str


@dataclass(frozen=True)
class Inference:
    """What was inferred: each capability with all its reasons, in the order of the names."""

    reasons: Mapping[str, tuple[Reason, ...]]
    unknown: tuple[Unknown, ...] = ()

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(self.reasons)


@dataclass(frozen=True)
class Row:
    """One distribution of the static map."""

    capabilities: tuple[str, ...]
    text: str
    """The reason, with {name} for the distribution as the lock spells it."""
    sdist_only: bool
    library: str | None = None
    unless: frozenset[str] = frozenset()


@cache
def distributions() -> Mapping[str, tuple[Row, ...]]:
    """Distribution name -> its rows of ``distributions.toml``."""
    with open(f"{DATA}/distributions.toml", "rb") as f:
        raw = tomllib.load(f)
    found: dict[str, tuple[Row, ...]] = {}
    for name, capabilities in raw["builds"].items():
        found[name] = (Row(tuple(capabilities), "{name}: its sdist is built against it", sdist_only=True),)
    for verb, noun in (("opens", "library"), ("runs", "program")):
        for name, row in raw[verb].items():
            text = f"{{name}} {verb} {row[noun]} at run time"
            unless = frozenset(row.get("unless", ()))
            made = Row(tuple(row["capabilities"]), text, sdist_only=False, library=row.get("library"), unless=unless)
            found[name] = (*found.get(name, ()), made)
    return found


def build_capabilities(name: str) -> tuple[str, ...]:
    """The capabilities whose headers the builder sandbox needs for this distribution's sdist."""
    rows = distributions().get(canonicalize_name(name), ())
    return tuple(c for row in rows if row.sdist_only for c in row.capabilities)


def infer_env(store: Store, packages: Sequence[LockedPackage], base_sonames: frozenset[str], base: str) -> Inference:
    """Inspect the pkg-builds of an env (once each, then from the cache) and infer what it needs."""
    oids = sorted({package.pkg_build_oid for package in packages if package.pkg_build_oid})
    return infer(packages, {oid: inspect_pkg_build(store, oid) for oid in oids}, base_sonames, base)


def infer(
    packages: Sequence[LockedPackage],
    inspections: Mapping[str, Inspection],
    base_sonames: frozenset[str],
    base: str,
) -> Inference:
    """Infer the capabilities of an env on a base; ``inspections`` is keyed by pkg-build oid."""
    ordered = sorted(packages, key=lambda p: (canonicalize_name(p.name), p.version))
    collected: dict[str, list[Reason]] = {}
    for package in ordered:
        for capability, reason in _from_lock(package, {canonicalize_name(p.name) for p in ordered}, base_sonames):
            # The table speaks for all bases; what this one does not have (wkhtmltopdf) cannot be needed on it.
            if base in table()[capability].packages:
                collected.setdefault(capability, []).append(reason)
    found = list(_outside(ordered, inspections, base_sonames))
    _assign(found, base, collected)
    unknown = sorted(
        {Unknown(p.name, n.file, n.soname) for p, n in found if not sonames.owners(n.soname, base)},
        key=lambda u: (u.package, u.file, u.soname),
    )
    return Inference({name: tuple(collected[name]) for name in sorted(collected)}, tuple(unknown))


def _from_lock(package: LockedPackage, names: set[str], base_sonames: frozenset[str]) -> Iterable[tuple[str, Reason]]:
    for row in distributions().get(canonicalize_name(package.name), ()):
        if row.sdist_only and not package.from_sdist:
            continue
        if row.library in base_sonames or row.unless & names:
            continue
        for capability in row.capabilities:
            text = row.text.format(name=package.name)
            yield capability, Reason("lock", package.name, package.version, text, soname=row.library)


def _outside(
    packages: Sequence[LockedPackage], inspections: Mapping[str, Inspection], base_sonames: frozenset[str]
) -> Iterable[tuple[LockedPackage, Need]]:
    """Every required need that neither the env (where the loader would look) nor the base meets."""
    inspected = [
        (p, inspections[p.pkg_build_oid]) for p in packages if p.pkg_build_oid and p.pkg_build_oid in inspections
    ]
    provided = {found for _, inspection in inspected for found in inspection.provides}
    for package, inspection in inspected:
        for need in inspection.needs:
            if not need.required or need.soname in base_sonames:
                continue
            places = ((need.machine, posixpath.join(directory, need.soname)) for directory in need.search)
            if provided.isdisjoint(places):
                yield package, need


def _assign(found: Iterable[tuple[LockedPackage, Need]], base: str, collected: dict[str, list[Reason]]) -> None:
    """Give each need to a capability: those that only one brings first, so that the others can share it.

    OpenCV needs libGL and GLib; the opengl capability has both, so glib is not added beside it.
    """
    shared = []
    for package, need in found:
        owners = sonames.owners(need.soname, base)
        if len(owners) == 1:
            collected.setdefault(owners[0], []).append(_elf_reason(package, need))
        elif owners:
            shared.append((package, need, owners))
    for package, need, owners in shared:
        chosen = next((owner for owner in owners if owner in collected), owners[0])
        collected.setdefault(chosen, []).append(_elf_reason(package, need))


def _elf_reason(package: LockedPackage, need: Need) -> Reason:
    text = f"{package.name}: {need.file} needs {need.soname}"
    return Reason("elf", package.name, package.version, text, need.file, need.soname)
