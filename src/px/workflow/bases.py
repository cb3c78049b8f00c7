"""Pinning a base anew from its archive's signed index: what ``px base lock`` does, for px's maintainers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from px import console
from px.alpine import mirror as alpine_mirror
from px.alpine import relock as alpine
from px.debian.lock import encode, file_name, read
from px.debian.locking.check import Checked, check, gone_everywhere
from px.debian.locking.relock import (
    ALPINE_SEEDS,
    Archive,
    differences,
    load_capability_seeds,
    load_seeds,
    relock,
    relock_with_index,
)
from px.debian.mirror import mirrors
from px.errors import PxError
from px.sandbox.layers.base import load_base_lock, locks_directories, unknown_base
from px.store.files import disk_errors, write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from px.debian.lock import BaseLock
    from px.debian.locking.index import Index
    from px.debian.locking.relock import Seeds
    from px.project.context import Context

_ONLINE = "Run it without --offline."


def seeds_of(name: str) -> Seeds:
    """What a base starts from; an unknown name is PX900."""
    known = load_seeds() | load_seeds(ALPINE_SEEDS)
    if name not in known:
        raise unknown_base(name, tuple(known))
    return known[name]


def architectures_of(seeds: Seeds, wanted: list[str] | None) -> tuple[str, ...]:
    for name in wanted or ():
        if name not in seeds.architectures:
            raise PxError("PX900", base=seeds.name, problem=f"px does not make it for {name}")
    return tuple(wanted or seeds.architectures)


def relock_base(seeds: Seeds, architecture: str, directory: Path, *, dry_run: bool) -> list[str]:
    """Make the lock, write it unless this is only a look, and say how it differs from the one that it replaces."""
    lock = _alpine(seeds, architecture) if seeds.name.startswith("alpine-") else _debian(seeds, architecture)
    lines = differences(_previous(directory, seeds.name, architecture), lock)
    if not dry_run:
        with disk_errors(directory):
            write_atomically(directory / file_name(seeds.name, architecture), encode(lock))
    return lines


def _debian(seeds: Seeds, architecture: str) -> BaseLock:
    return relock(_archive(seeds, architecture), seeds, architecture, load_capability_seeds(seeds.name))


def check_base(name: str, architecture: str) -> tuple[list[Checked], list[str]]:
    """What each archive has of the pins that px ships, and which pins none has."""
    lock = load_base_lock(name, architecture)
    if lock.is_alpine:
        found = [check(lock, mirror) for mirror in alpine_mirror.mirrors(name)]
    else:
        found = [check(lock, mirror) for mirror in mirrors(lock.date, *lock.older)]
    return found, gone_everywhere(found)


def _archive(seeds: Seeds, architecture: str) -> Archive:
    mirror = mirrors(f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}")[0]
    console.info(f"Reading the index of {seeds.name} for {architecture} from {mirror.origin} …")
    return Archive(mirror)


def newest_lock(
    context: Context, base: str, architecture: str, capabilities: Collection[str]
) -> tuple[BaseLock, Index]:
    """A lock of a base and some capabilities as the archive has them now, and the archive's index."""
    if context.offline:
        problem = "newer versions cannot be looked for offline"
        raise PxError("PX900", base=base, problem=problem, fix=[_ONLINE], whole_fix=True)
    seeds = seeds_of(base)
    if seeds.name.startswith("alpine-"):
        problem = "px does not compare pins of Alpine's packages with newer versions"
        fix = [f"Make them anew: rm the file with the pins, then px base lock {base}, then px sandbox pin"]
        raise PxError("PX900", base=base, problem=problem, fix=fix, whole_fix=True)
    wanted = {name: row for name, row in load_capability_seeds(base).items() if name in capabilities}
    return relock_with_index(_archive(seeds, architecture), seeds, architecture, wanted)


def _alpine(seeds: Seeds, architecture: str) -> BaseLock:
    archive = alpine.Archive(alpine_mirror.mirrors(seeds.name), alpine_mirror.keys_directory(seeds.name))
    console.info(f"Locking {seeds.name} for {architecture} from {archive.mirrors[0].origin} …")
    return alpine.relock(archive, seeds, architecture, load_capability_seeds(seeds.name))


def _previous(directory: Path, name: str, architecture: str) -> BaseLock | None:
    """The lock that is replaced: the one in the directory, else the one that px uses now."""
    for place in (directory, *locks_directories()):
        try:
            return read(place, name, architecture)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue
    return None
