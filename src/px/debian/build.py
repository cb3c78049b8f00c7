"""Builds the tree of a base or layer from pinned packages: download, unpack, apply the fix-ups."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from px import console
from px.debian.download import arriving
from px.debian.fixups import BASE, LAYER
from px.debian.toolchain import STAND_IN, Rules
from px.debian.unpack import DROPPED, BadPackageError, Reading, Unpacked, load, unpack_all, unpacking_order
from px.errors import PxError
from px.platforms import ARCHITECTURES
from px.store.sources import discard_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.canonical import Value
    from px.store.objects import Store


def build_base(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Value]:
    """Write a base's tree and return its spec."""
    # The links of merged /usr (bin -> usr/bin) must be there first.  Some packages ship /bin/x and others /usr/bin/x:
    # with the links in place, Image writes both below /usr.
    for name in ARCHITECTURES[lock.architecture].merged:
        image.directory(f"usr/{name}")
        image.link(name, f"usr/{name}")
    unpacked = _unpack(store, lock, packages, image)
    for fix_up in BASE:
        fix_up(image, unpacked)
    return image.finish()


def build_layer(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image, rules: Rules | None = None
) -> list[Value]:
    """Write what ``packages`` add to the layers below; return the spec of the new layer."""
    unpacked = _unpack(store, lock, packages, image, rules)
    # Before the fix-ups: `alternatives` looks at which files exist.
    if rules is not None:
        _complete(image, rules)
    for fix_up in LAYER:
        fix_up(image, unpacked)
    return image.finish()


def _complete(image: Image, rules: Rules) -> None:
    """Add the links and stand-ins for the files that the rules leave out."""
    for path, target in rules.links:
        if path not in image:
            image.link(path, target)
    for path in rules.stand_ins:
        image.file(path, STAND_IN.encode(), 0o755)


def _unpack(
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    image: Image,
    rules: Rules | None = None,
) -> list[Unpacked]:
    # `stop` ends the reading of a package, and `left` skips single files before that.
    how = Reading()
    if rules is not None:
        dropped = re.compile(f"{DROPPED.pattern}|{rules.left}")
        how = Reading(partial(load, stop=re.compile(rules.stop)), dropped)
    label = f"Unpacking {console.counted(len(packages), 'Debian package')}"
    size = sum(p.size for p in packages)
    try:
        with (
            # Downloads come in the order of unpacking, so that the first packages are unpacked while others arrive.
            arriving(store, lock, unpacking_order(packages)) as place,
            console.progress(label, size) as bar,
        ):
            return unpack_all(image, packages, place, replace(how, on_done=lambda p: bar.advance(p.size)))
    except BadPackageError as e:
        if e.damaged:
            # Otherwise every further try would find the same damaged file in the store.
            discard_source(store, e.package.sha256)
        raise build_error(lock, e) from e


def build_error(lock: BaseLock, error: BadPackageError) -> PxError:
    """PX903 for a package that cannot be used."""
    problem = f"the package {error.package.label} of {lock.name} cannot be used: {error.problem}"
    if error.damaged:
        why = ["The disk or another program changed the file after it was downloaded; px removed it from the store."]
        fix = ["Run the command again: px downloads the package again."]
    else:
        why = ["px refuses packages that would write outside their own tree or overwrite files of other packages."]
        fix = ["Report this package as a bug in px: the base's lock must not contain it."]
    return PxError("PX903", problem=problem, why=why, fix=fix)
