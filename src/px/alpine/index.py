"""Alpine's package indexes, and a solver for their dependencies.

A dependency names a package, a library (``so:libssl.so.3``), a command (``cmd:awk``) or a path.  Packages list those
that they provide, with or without a version.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.alpine.versions import satisfies, sort_key
from px.debian.locking.solver import UnsolvableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# Name and version become a file name and a part of addresses.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,200}")
_VERSION = re.compile(r"[0-9][A-Za-z0-9+._~-]{0,200}")
_TOKEN = re.compile(r"(?P<name>[^<>=~]+)(?:(?P<relation>[<>=~]+)(?P<version>.+))?")


@dataclass(frozen=True)
class Wish:
    """A name with an optional version condition: a dependency, a provided name or a conflict."""

    name: str
    relation: str = ""
    version: str = ""

    def accepts(self, version: str) -> bool:
        # A name that is provided without a version satisfies only wishes without a version.  Versions that pkg-config
        # files provide (pc:x=1.0-dev) need not be Alpine's: nothing is known about them.
        try:
            return not self.relation or (bool(version) and satisfies(version, self.relation, self.version))
        except (ValueError, KeyError):
            return False

    def __str__(self) -> str:
        return f"{self.name}{self.relation}{self.version}"


def parse_wish(token: str) -> Wish:
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise ValueError(f"not a dependency: {token!r}")
    return Wish(found["name"], found["relation"] or "", found["version"] or "")


@dataclass(frozen=True)
class Package:
    """One package in an index."""

    name: str
    version: str
    repository: str
    size: int
    control_sha1: str
    depends: tuple[Wish, ...] = ()
    conflicts: tuple[Wish, ...] = ()
    provides: tuple[Wish, ...] = ()
    priority: int = 0

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.apk"

    def meets(self, wish: Wish) -> bool:
        if self.name == wish.name and wish.accepts(self.version):
            return True
        return any(p.name == wish.name and wish.accepts(p.version) for p in self.provides)


def parse_index(text: str, repository: str) -> list[Package]:
    """Every package of an APKINDEX."""
    return [_package(stanza, repository) for stanza in text.strip().split("\n\n") if stanza.strip()]


def _package(stanza: str, repository: str) -> Package:
    # One letter for each field: P name, V version, S size, C checksum, D dependencies, p provides, k priority.
    # A checksum starts with Q1, which stands for sha1 in base64.  A dependency that starts with "!" is a conflict.
    rows = {line[0]: line[2:] for line in stanza.splitlines() if line[1:2] == ":"}
    tokens = rows.get("D", "").split()
    if not _NAME.fullmatch(rows["P"]) or not _VERSION.fullmatch(rows["V"]):
        raise ValueError(f"not a package: {rows['P']!r} {rows['V']!r}")
    return Package(
        rows["P"],
        rows["V"],
        repository,
        int(rows["S"]),
        base64.b64decode(rows["C"].removeprefix("Q1")).hex(),
        tuple(parse_wish(t) for t in tokens if not t.startswith("!")),
        tuple(parse_wish(t[1:]) for t in tokens if t.startswith("!")),
        tuple(parse_wish(t) for t in rows.get("p", "").split()),
        int(rows.get("k", "0")),
    )


class Index:
    """The newest version of every package."""

    def __init__(self, packages: Iterable[Package]):
        self.newest: dict[str, Package] = {}
        for package in packages:
            known = self.newest.get(package.name)
            if known is None or sort_key(package.version) > sort_key(known.version):
                self.newest[package.name] = package
        self.by_name: dict[str, list[Package]] = {}
        for package in self.newest.values():
            for name in {package.name, *(provided.name for provided in package.provides)}:
                self.by_name.setdefault(name, []).append(package)

    def matches(self, wish: Wish) -> list[Package]:
        """The packages that satisfy ``wish``: the one of that name first, then by priority and name."""
        found = [p for p in self.by_name.get(wish.name, ()) if p.meets(wish)]
        return sorted(found, key=lambda p: (p.name != wish.name, -p.priority, p.name))


def solve(
    index: Index, seeds: Iterable[str], *, drop: Collection[str] = (), installed: Mapping[str, Package] | None = None
) -> dict[str, Package]:
    """The packages that ``seeds`` need in addition to ``installed``, by name (see px.debian.locking.solver)."""
    installed = dict(installed or {})
    chosen, asked_by = dict(installed), dict[str, str]()
    pending: deque[tuple[Wish, str]] = deque((parse_wish(seed), "") for seed in sorted(set(seeds)))
    while pending:
        wish, needer = pending.popleft()
        # Unlike Debian's, a dependency has no alternatives: a package that provides the name takes their place.
        if wish.name in drop or any(p.meets(wish) for p in chosen.values()):
            continue
        found = next(iter(index.matches(wish)), None)
        if found is None:
            raise _unmet(wish, needer, asked_by)
        chosen[found.name], asked_by[found.name] = found, needer
        pending.extend((more, found.name) for more in found.depends)
    _refuse_conflicts(chosen)
    return {name: p for name, p in sorted(chosen.items()) if name not in installed}


def _unmet(wish: Wish, needer: str, asked_by: Mapping[str, str]) -> UnsolvableError:
    if not needer:
        return UnsolvableError(f"there is no package {wish}")
    chain = [needer]
    while asked_by.get(chain[-1]):
        chain.append(asked_by[chain[-1]])
    return UnsolvableError(f"{needer} depends on {wish}", tuple(chain))


def _refuse_conflicts(chosen: Mapping[str, Package]) -> None:
    for name, package in sorted(chosen.items()):
        for wish in package.conflicts:
            for other in sorted(chosen):
                if other != name and chosen[other].meets(wish):
                    raise UnsolvableError(f"{name} conflicts with {other}")
