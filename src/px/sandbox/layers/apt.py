"""apt in an image: its packages, and the database in which it finds what the image has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.errors import PxError
from px.sandbox.layers.base import inputs_key
from px.sandbox.layers.layer import Layer
from px.sandbox.layers.system import ensure_layer_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.sandbox.layers.base import Base
    from px.store.objects import Draft, Payload, Store

CAPABILITY = "apt"
RECIPE = 1


def ensure_apt_layers(store: Store, base: Base, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """What an image of these layers lacks so that apt can go on from it; nothing if it has the capability.

    The layers go on top of the image, whose ``sbx_id`` does not know about them.
    """
    if base.is_alpine or any(layer.what == "dpkg" for layer in layers):
        return ()
    if base.lock.pins is not None and CAPABILITY not in base.lock.capabilities:
        raise _not_pinned(base.name, base.lock.pins.name)
    system = [layer for layer in layers if layer.what == "system"]
    apt = ensure_layer_beside(store, base, CAPABILITY, system)
    more = [apt] if apt is not None else []
    return (*more, ensure_database_layer(store, base, [*system, *more]))


def _not_pinned(base: str, pins: str) -> PxError:
    problem = f"the provider needs it in the image, and {pins} has no pins for it"
    # What is pinned once stays pinned, so the project's own sandbox need not have it.
    fix = ["Pin it, without a change of the sandbox: px sandbox add apt && px sandbox pin && px sandbox remove apt"]
    return PxError("PX901", capability=CAPABILITY, base=base, problem=problem, fix=fix, whole_fix=True)


def ensure_database_layer(store: Store, base: Base, layers: Sequence[Layer]) -> Layer:
    """dpkg's database of the packages of the base and of these layers."""
    packages = sorted({*base.packages, *(p for layer in layers for p in layer.packages)})

    def make(draft: Draft) -> Payload:
        from px.debian.build import build_error
        from px.debian.fixups.database import write_database
        from px.debian.unpack import BadPackageError

        tree = draft.tree()
        try:
            write_database(store, base.lock, packages, tree)
        except BadPackageError as e:
            raise build_error(base.lock, e) from e
        return {"what": "dpkg", "base": base.oid, "tree": tree.finish()}

    key = inputs_key(base.lock, packages, ["dpkg", str(RECIPE)])
    oid = store.ensure("layer", key, make, label=f"the package database of {base.name}")
    return Layer.of(store, oid, "dpkg")
