"""The project's own pins: making them, taking newer versions, and saying which there are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from px import console
from px.debian.locking.pins import agree, changes, encode_pins, joined, newer, read_pins, restricted, take
from px.errors import PxError
from px.platforms import host_architecture
from px.project.situation import load
from px.project.state import Target
from px.sandbox.definition import derive
from px.sandbox.edit import set_pins
from px.sandbox.layers.base import load_base_lock
from px.sandbox.manifest import governing_manifest
from px.store.files import disk_errors, write_atomically
from px.warm.record import BuiltSandbox
from px.workflow.bases import architectures_of, newest_lock, seeds_of
from px.workflow.pack import production

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from px.debian.lock import BaseLock
    from px.debian.locking.pins import Change
    from px.project.context import Context
    from px.project.situation import Situation
    from px.sandbox.manifest import SandboxManifest

FILE = "px-pins.json"


@dataclass(frozen=True)
class Newer:
    """What has newer versions, by architecture."""

    changes: Mapping[str, list[Change]]

    def security(self) -> Newer:
        return Newer({name: [c for c in found if c.security] for name, found in self.changes.items()})

    @property
    def count(self) -> int:
        return sum(map(len, self.changes.values()))

    def lines(self) -> list[str]:
        return [
            line
            for name, found in self.changes.items()
            for line in (f"{name}: {len(found)} newer", *(f"  {change.line}" for change in found))
        ]

    def as_json(self) -> dict[str, object]:
        return {"changes": {name: [asdict(change) for change in found] for name, found in self.changes.items()}}


def pin(situation: Situation, wanted: list[str] | None) -> dict[str, BaseLock]:
    """Write the pins of what the project uses, for these architectures too; what is pinned stays as it is."""
    context = situation.context
    manifest = sandbox_manifest(context)
    old = read_pins(manifest.pins) if manifest.pins is not None and manifest.pins.is_file() else {}
    if old and next(iter(old.values())).name != manifest.base:
        load_base_lock(manifest.base, next(iter(old)), manifest.pins)  # says what is wrong
    used = _used(situation, manifest, old.get(host_architecture()))
    for lock in old.values():
        used |= lock.capabilities.keys()
    chosen = architectures_of(seeds_of(manifest.base), wanted) if wanted or not old else ()
    locks = {name: _pinned(context, manifest.base, name, old.get(name), used) for name in sorted({*old, *chosen})}
    path = manifest.pins or context.project.manifest.path.with_name(FILE)
    with disk_errors(path.parent):
        write_atomically(path, encode_pins(locks))
    if manifest.pins is None:
        set_pins(context.project.manifest.path, FILE)
    return locks


def _used(situation: Situation, manifest: SandboxManifest, old: BaseLock | None) -> set[str]:
    """The capabilities of the sandbox, and of the image that is packed."""
    lock = load_base_lock(manifest.base, host_architecture())
    # What is not pinned yet must be found out with px's own pins.
    lock = joined(old, lock) if old else lock
    selection = situation.selection(Target.SANDBOX)
    derived = [derive(situation, s, lock=lock) for s in (selection, production(situation.project, selection, None))]
    return {name for d in derived for name in d.capabilities} | manifest.enabled


def _pinned(context: Context, base: str, architecture: str, old: BaseLock | None, used: Collection[str]) -> BaseLock:
    own = load_base_lock(base, architecture)
    if old is None:
        return restricted(own, used)
    missing = set(used) - old.capabilities.keys()
    if not missing:
        return old
    more = restricted(own, missing)
    if agree(old, more):
        return joined(old, more)
    # px has moved on: its packages for this capability may not fit the versions that the project has.
    new, index = newest_lock(context, base, architecture, {*old.capabilities, *missing})
    added = {name for c in missing for name in (*new.capabilities[c].runtime, *new.capabilities[c].build)}
    return take(old, new, index, added - old.packages.keys())


def update(context: Context, names: Collection[str], *, dry_run: bool = False) -> Newer:
    """Take the newest versions of these packages, or of all, from the archive's signed index."""
    manifest = sandbox_manifest(context)
    if manifest.pins is None:
        fix = ["Make them first: px sandbox pin", "Without pins, newer versions come with a newer px."]
        raise PxError("PX950", path=manifest.path, problem="[tool.px.sandbox] names none", fix=fix, whole_fix=True)
    locks = read_pins(manifest.pins)
    unknown = sorted(set(names) - {name for lock in locks.values() for name in lock.packages})
    if unknown:
        raise PxError("PX950", path=manifest.pins, problem=f"it does not pin {', '.join(unknown)}")
    found: dict[str, list[Change]] = {}
    for architecture, lock in locks.items():
        new, index = newest_lock(context, manifest.base, architecture, lock.capabilities)
        fresh = {c.name for c in newer(changes(lock, new, index))}
        locks[architecture] = take(lock, new, index, fresh & set(names) if names else fresh)
        found[architecture] = changes(lock, locks[architecture], index)
    if not dry_run and any(found.values()):
        with disk_errors(manifest.pins.parent):
            write_atomically(manifest.pins, encode_pins(locks))
    return Newer(found)


def outdated(context: Context) -> Newer:
    """What has newer versions, by architecture: of the project's pins, or of px's own for what it is known to use."""
    manifest = sandbox_manifest(context)
    if manifest.pins is not None:
        return update(context, (), dry_run=True)
    console.detail("the project has no pins of its own: px's are compared")
    built = load(context.home, context.root).envs.get(Target.SANDBOX.value)
    used = built.capabilities if isinstance(built, BuiltSandbox) else ()
    lock = restricted(load_base_lock(manifest.base, host_architecture()), {*manifest.enabled, *used})
    new, index = newest_lock(context, manifest.base, lock.architecture, lock.capabilities)
    return Newer({lock.architecture: newer(changes(lock, new, index))})


def sandbox_manifest(context: Context) -> SandboxManifest:
    return governing_manifest(context.project.manifest.path)[0]
