"""From pinned packages to a tree: download, unpack, fix up; the same tree on every machine."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from px import console
from px.debian.download import arriving
from px.debian.fixups import BASE, LAYER
from px.debian.image import Below, Image
from px.debian.toolchain import STAND_IN, Rules
from px.debian.unpack import DROPPED, MERGED, BadPackageError, Unpacked, load, unpack_all, unpacking_order
from px.errors import PxError
from px.store.sources import discard_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.canonical import Value
    from px.store.objects import Store
    from px.store.tree import TreeWriter


def build_base(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], writer: TreeWriter, *, offline: bool
) -> list[Value]:
    """Write a base's tree and return its spec."""
    image = Image(writer)
    for name in MERGED[lock.architecture]:
        image.directory(f"usr/{name}")
        image.link(name, f"usr/{name}")
    unpacked = _unpack(store, lock, packages, image, offline=offline)
    for fix_up in BASE:
        fix_up(image, unpacked)
    return writer.finish()


def build_layer(
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    writer: TreeWriter,
    below: Sequence[Below],
    *,
    offline: bool,
    rules: Rules | None = None,
) -> list[Value]:
    """Write what ``packages`` add to the layers below and return its spec."""
    image = Image(writer, below)
    unpacked = _unpack(store, lock, packages, image, rules, offline=offline)
    if rules is not None:
        _complete(image, rules)
    for fix_up in LAYER:
        fix_up(image, unpacked)
    return writer.finish()


def _complete(image: Image, rules: Rules) -> None:
    """What the rules put in the place of what they leave out."""
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
    *,
    offline: bool,
) -> list[Unpacked]:
    read, dropped = load, DROPPED
    if rules is not None:
        read = partial(load, stop=re.compile(rules.stop))
        dropped = re.compile(f"{DROPPED.pattern}|{rules.left}")
    label = f"Unpacking {console.counted(len(packages), 'Debian package')}"
    size = sum(p.size for p in packages)
    try:
        with (
            arriving(store, lock, unpacking_order(packages), offline=offline) as place,
            console.progress(label, size) as bar,
        ):
            return unpack_all(image, packages, place, lambda p: bar.advance(p.size), read=read, dropped=dropped)
    except BadPackageError as e:
        if e.damaged:
            discard_source(store, e.package.sha256)
        raise build_error(lock, e) from e


def build_error(lock: BaseLock, error: BadPackageError) -> PxError:
    """The error for a package that cannot be used, with its name and what to do."""
    problem = f"the package {error.package.label} of {lock.name} cannot be used: {error.problem}"
    if error.damaged:
        why = ["The disk or another program changed the file after it was downloaded; px removed it from the store."]
        fix = ["Run the command again: px downloads the package anew."]
    else:
        why = ["px refuses packages that would write outside of their own tree or overwrite each other's files."]
        fix = ["Report it with the name of the package: the base's lock must not pin it."]
    return PxError("PX903", problem=problem, why=why, fix=fix)
