"""Layers of the distribution's packages on a base: libraries for images, compilers and headers for builds."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from px.debian import toolchain
from px.debian.image import Image
from px.errors import PxError
from px.platforms import ARCHITECTURES
from px.sandbox.layers.base import inputs_key, package_row
from px.sandbox.layers.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from px.debian.lock import BaseLock
    from px.debian.toolchain import Rules
    from px.sandbox.layers.base import Base
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload, Store
    from px.store.tree import Entry

_LAST = 4  # layers that another one takes files from


def ensure_system_layer(store: Store, base: Base, capabilities: Iterable[str]) -> Layer | None:
    """The packages that these capabilities need at run time, or None where the base has them all."""
    names = {n for c in sorted(set(capabilities)) for n in closure(base.lock, c)[0]}
    return _Packages(store, base).ensure("system", names)


def ensure_layer_beside(store: Store, base: Base, capability: str, on: Sequence[Layer]) -> Layer | None:
    """The packages of a capability that an image with the layers ``on`` its base lacks, or None if it has them all."""
    there = {p.name for layer in on for p in layer.packages}
    return _Packages(store, base).ensure(capability, set(closure(base.lock, capability)[0]) - there, on)


def closure(lock: BaseLock, capability: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a capability's runtime and build packages beyond the base."""
    found = lock.capabilities.get(capability)
    if found is None:
        if lock.pins is not None:
            problem, fix = f"{lock.pins.name} has no pins for it", ["Add them to the project's pins: px sandbox pin"]
            raise PxError("PX901", capability=capability, base=lock.name, problem=problem, fix=fix)
        raise PxError("PX901", capability=capability, base=lock.name, problem="the base's lock has no packages for it")
    return found.runtime, found.build


def ensure_builder_layers(
    store: Store, base: Base, capabilities: Iterable[str], parts: Sequence[str] = toolchain.ALL
) -> tuple[Layer, ...]:
    """What turns sdists into wheels, bottom layer first: the compiler set, then headers for these capabilities.

    The parts of the compiler are the same for every project, so they are made once.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    lock, wanted, packages = base.lock, sorted(set(capabilities)), _Packages(store, base)
    with ThreadPoolExecutor(1) as beside:
        # The libraries as the image will have them, most likely: then they are unpacked only once.
        libraries = beside.submit(ensure_system_layer, store, base, wanted)
        if any(n in lock.compiler for c in wanted for n in closure(lock, c)[0]):
            wait([libraries])  # the two would fetch the same package at once
        layers: list[Layer] = []
        for part in parts:
            names, rules = _compiler_part(lock, part)
            made = packages.ensure(part, names, layers, rules)
            layers += [made] if made is not None else []
        system = libraries.result()
    below = [*layers[:1], *([system] if system else [])]
    # On the first part only, so that a build that needs the others finds the same headers made already.
    dev = {n for c in wanted for n in closure(lock, c)[1]} - {p.name for layer in below for p in layer.packages}
    headers = packages.ensure("build", dev - set(lock.compiler), below)
    return tuple(layer for layer in (*layers, system, headers) if layer is not None)


def _compiler_part(lock: BaseLock, part: str) -> tuple[frozenset[str], Rules | None]:
    """The packages of a part of the compiler set, and which of their files it has."""
    if lock.is_alpine:
        return frozenset(lock.compiler if part in toolchain.C else ()), None
    return toolchain.part_of(lock.compiler, part, ARCHITECTURES[lock.architecture].triplet)


class _Packages:
    """Makes layers of packages on one base."""

    def __init__(self, store: Store, base: Base):
        self.store, self.base = store, base

    def ensure(
        self, what: str, names: AbstractSet[str], on: Sequence[Layer] = (), rules: Rules | None = None
    ) -> Layer | None:
        """These packages on the base and the layers ``on`` it; None where the base has them all."""
        store, base, lock = self.store, self.base, self.base.lock
        packages = lock.pinned(names - frozenset(lock.base))
        if not packages:
            return None

        def make(draft: Draft) -> Payload:
            draft.refs.extend(layer.ref for layer in (base, *on))
            image = Image(draft.tree(), [layer.below(store) for layer in (base, *on)])
            if lock.is_alpine:
                from px.alpine.build import build_layer as build_alpine

                tree = build_alpine(store, lock, packages, image)
            else:
                from px.debian.build import build_layer

                tree = build_layer(store, lock, packages, image, rules, None if rules else self._kept())
            rows: list[Value] = [package_row(p) for p in packages]
            payload: Payload = {"what": what, "base": base.oid, "packages": rows, "tree": tree}
            return payload | ({"on": [layer.oid for layer in on]} if on else {})

        ruled = [repr(rules)] if rules else []
        key = inputs_key(lock, packages, [what, base.oid, *(layer.oid for layer in on), *ruled])
        oid = store.ensure("layer", key, make, label=f"the {what} layer of {base.name}")
        if rules is None:
            self._note(oid)
        return Layer.of(store, oid, what, packages)

    @property
    def _notes(self) -> Path:
        return self.store.home.cache("packages") / f"layers-{self.base.oid}"

    def _note(self, oid: str) -> None:
        """Remember a layer, whose files a larger one can take over."""
        with suppress(OSError):  # only a saving
            self._notes.mkdir(parents=True, exist_ok=True)
            (self._notes / oid).touch()

    def _kept(self) -> dict[tuple[str, int], tuple[Path, Entry]]:
        """The files of the layers that were made last on this base, by sha256 and mode."""
        found: dict[tuple[str, int], tuple[Path, Entry]] = {}
        notes = self._notes.iterdir() if self._notes.is_dir() else ()
        for note in sorted(notes, key=lambda path: path.stat().st_mtime)[-_LAST:]:
            if self.store.has("layer", note.name):
                layer = Layer.of(self.store, note.name, "system")
                files = (entry for entry in layer.entries(self.store) if entry[0] == "f")
                found |= {(str(e[4]), int(e[2])): (layer.tree, e) for e in files}
        return found
