"""A project's own pins: the locks of its base, with only the capabilities that it uses, in one file.

The file is JSON with one line for each package, as the locks that px ships.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from px import bounds
from px.debian.lock import BaseLock, Closure, encode, from_json
from px.debian.versions import sort_key
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from px.debian.deb822 import Relation
    from px.debian.lock import PinnedPackage
    from px.debian.locking.index import Index

FORMAT = 1


def read_pins(path: Path) -> dict[str, BaseLock]:
    """The locks in a project's file, by architecture."""
    try:
        raw = bounds.parse_json(path.read_bytes())
        # Another format has another number, which is no key of this table.
        found = [from_json(lock, path) for lock in {FORMAT: raw["locks"]}[raw["pins"]]]
        return {lock.architecture: lock for lock in found}
    except FileNotFoundError:
        raise PxError("PX950", path=path, problem="there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise PxError("PX950", path=path, problem=bounds.unread(e)) from e


def encode_pins(locks: Mapping[str, BaseLock]) -> bytes:
    body = b",\n".join(encode(lock).rstrip(b"\n") for _, lock in sorted(locks.items()))
    return b'{\n"pins": %d,\n"locks": [\n%b\n]\n}\n' % (FORMAT, body)


def find_pins(path: Path, name: str, architecture: str) -> BaseLock:
    """The lock of one base and architecture in a project's file."""
    lock = read_pins(path).get(architecture)
    if lock is None:
        raise PxError("PX950", path=path, problem=f"it has no pins for {architecture}")
    if lock.name != name:
        fix = [f'Make them for the other base: rm {path.name}, then px sandbox pin; or set base = "{lock.name}"']
        raise PxError("PX950", path=path, problem=f"it pins {lock.name}, not {name}", fix=fix, whole_fix=True)
    return lock


def restricted(lock: BaseLock, capabilities: Collection[str]) -> BaseLock:
    """A lock with the base, the compiler set and only these capabilities."""
    closures = {name: lock.capabilities[name] for name in sorted(capabilities) if name in lock.capabilities}
    return replace(lock, capabilities=closures, packages={p.name: p for p in lock.pinned(_names(lock, closures))})


def _names(lock: BaseLock, closures: Mapping[str, Closure]) -> set[str]:
    return {*lock.base, *lock.compiler, *(n for c in closures.values() for n in (*c.runtime, *c.build))}


def agree(one: BaseLock, other: BaseLock) -> bool:
    """Whether two locks have the same base, and the same version of every package that both have."""
    shared = one.packages.keys() & other.packages.keys()
    return one.base == other.base and all(one.packages[n].sha256 == other.packages[n].sha256 for n in shared)


def joined(old: BaseLock, new: BaseLock) -> BaseLock:
    """The capabilities of both; a package that both have is the old one."""
    capabilities = {**new.capabilities, **old.capabilities}
    return replace(
        old, capabilities=capabilities, packages={**new.packages, **old.packages}, older=_dates(old, new.date)
    )


def _dates(lock: BaseLock, more: str) -> tuple[str, ...]:
    return tuple(sorted({*lock.older, more} - {lock.date}))


# --- taking newer versions -------------------------------------------------------------------------------------


def take(old: BaseLock, new: BaseLock, index: Index, names: Iterable[str]) -> BaseLock:
    """The old lock with the new versions of some packages, and of what these need to be new as well."""
    moved = _moved(old, new, index, names)

    def grown(before: Iterable[str], after: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({*before, *(moved & set(after))}))

    before = {name: old.capabilities.get(name) for name in new.capabilities}
    closures = {
        name: Closure(grown(b.runtime, c.runtime), grown(b.build, c.build)) if (b := before[name]) else c
        for name, c in new.capabilities.items()
    }
    lock = replace(
        old,
        date=new.date,
        older=_dates(replace(new, older=old.older), old.date),
        base=grown(old.base, new.base),
        compiler=grown(old.compiler, new.compiler),
        capabilities=closures,
    )
    wanted = _names(lock, closures)
    kept = {name: p for name, p in old.packages.items() if name not in moved and not _same(p, new.packages.get(name))}
    return replace(lock, packages={n: kept.get(n) or new.packages[n] for n in sorted(wanted)})


def _same(one: PinnedPackage | None, other: PinnedPackage | None) -> bool:
    # Not ==: a point release moves a package from the security archive to the main one, and it stays the same file.
    return one is not None and other is not None and one.sha256 == other.sha256


def _moved(old: BaseLock, new: BaseLock, index: Index, names: Iterable[str]) -> set[str]:
    """The packages to take from the new lock: these, those of the same source, and what they need newer."""
    sources: dict[str, list[str]] = {}
    for name in new.packages:
        sources.setdefault(_source(index, name), []).append(name)
    moved: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        was, now, found = old.packages.get(name), new.packages.get(name), index.get(name)
        if name in moved or now is None or found is None or _same(was, now):
            continue
        moved.add(name)
        # Packages of one source ask for each other's exact version (libssl-dev for its libssl3).
        pending += sources[_source(index, name)]
        for group in found.depends:
            if not any(_met(relation, old, moved, index) for relation in group):
                pending += [c.name for r in group for c in index.matches(r) if c.name in new.packages][:1]
    return moved


def _met(relation: Relation, old: BaseLock, moved: Collection[str], index: Index) -> bool:
    kept = old.packages.get(relation.name)
    if kept is not None and kept.name not in moved and relation.accepts(kept.version):
        return True
    return any(c.name in moved or (c.name != relation.name and c.name in old.packages) for c in index.matches(relation))


def _source(index: Index, name: str) -> str:
    found = index.get(name)
    return (found.fields.get("Source", name) if found else name).split()[0]


# --- what changed ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A package that another lock has in another version, or that only one of the two has."""

    name: str
    old: str | None
    new: str | None
    security: bool = False
    """A fix from the security archive is among what changed."""

    @property
    def line(self) -> str:
        what = f"{self.old or '(new)'} -> {self.new or '(gone)'}"
        return f"{'security' if self.security else '        '}  {self.name} {what}"


def changes(old: BaseLock, new: BaseLock, index: Index) -> list[Change]:
    """What differs, security fixes first, then by name."""
    found = []
    for name in sorted({*old.packages, *new.packages}):
        was, now = old.packages.get(name), new.packages.get(name)
        if not _same(was, now):
            security = was is not None and now is not None and index.has_security_fix(name, was.version)
            found.append(Change(name, was.version if was else None, now.version if now else None, security))
    return sorted(found, key=lambda c: (not c.security, c.name))


def newer(changed: Iterable[Change]) -> list[Change]:
    """Only packages that have a newer version: a mirror may also lag behind what is pinned."""
    return [c for c in changed if c.old and c.new and sort_key(c.new) > sort_key(c.old)]
