"""Builds the tree of a base or layer from pinned packages: download, unpack, apply the fix-ups."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from px import console
from px.debian.archive import FILE, Member
from px.debian.download import arriving
from px.debian.fixups import BASE, LAYER
from px.debian.toolchain import STAND_IN, Rules
from px.debian.unpack import DROPPED, BadPackageError, Found, Reading, Unpacked, load, unpack_all, unpacking_order
from px.errors import PxError
from px.platforms import ARCHITECTURES
from px.store.files import write_json
from px.store.sources import discard_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from px.debian.image import Image
    from px.debian.lock import BaseLock, PinnedPackage
    from px.debian.unpack import Row
    from px.store.canonical import Value
    from px.store.objects import Store
    from px.store.tree import Entry

    Kept = Mapping[tuple[str, int], tuple[Path, Entry]]
    """Files of layers by sha256 and mode."""


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
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    image: Image,
    rules: Rules | None = None,
    kept: Kept | None = None,
) -> list[Value]:
    """Write what ``packages`` add to the layers below; return the spec of the new layer.

    ``kept`` are files of layers that were made before: a package whose files are all there is not unpacked again.
    """
    unpacked = _unpack(store, lock, packages, image, rules, kept)
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
    kept: Kept | None = None,
) -> list[Unpacked]:
    # `stop` ends the reading of a package, and `left` skips single files before that.
    how = Reading()
    if kept is not None:
        how = Reading(known=_known(store, packages, kept), remember=partial(_remember, store))
    if rules is not None:
        dropped = re.compile(f"{DROPPED.pattern}|{rules.left}")
        how = Reading(partial(load, stop=re.compile(rules.stop)), dropped)
    new = [p for p in packages if p.sha256 not in how.known]
    label = f"Unpacking {console.counted(len(new), 'Debian package')}"
    size = sum(p.size for p in new)
    try:
        with (
            # Downloads come in the order of unpacking, so that the first packages are unpacked while others arrive.
            arriving(store, lock, unpacking_order(new)) as place,
            console.progress(label, size) if new else nullcontext() as bar,
        ):
            counted = {p.sha256: p.size for p in new}
            on_done = (lambda p: bar.advance(counted.get(p.sha256, 0))) if bar else how.on_done
            return unpack_all(image, packages, place, replace(how, on_done=on_done))
    except BadPackageError as e:
        if e.damaged:
            # Otherwise every further try would find the same damaged file in the store.
            discard_source(store, e.package.sha256)
        raise build_error(lock, e) from e


# --- packages that were unpacked before ------------------------------------------------------------------------


def _remember(store: Store, package: PinnedPackage, control: dict[str, bytes], rows: list[Row]) -> None:
    """Keep what is in a package, without the files themselves; those are in the layer that it was unpacked into."""
    scripts = {name: control[name].decode("latin-1") for name in ("control", "md5sums", "postinst") if name in control}
    write_json(store.home.cache("packages") / package.sha256, [scripts, rows], durable=False)


def _known(store: Store, packages: Sequence[PinnedPackage], kept: Kept) -> dict[str, Found]:
    """Of the packages, those whose files are all kept somewhere."""
    found = {}
    for package in packages:
        try:
            scripts, rows = json.loads((store.home.cache("packages") / package.sha256).read_bytes())
            members = tuple(_member(row, kept) for row in rows)
        except (OSError, ValueError, KeyError):
            continue  # not known, or not all of it is there any more: it is unpacked
        found[package.sha256] = Found({name: text.encode("latin-1") for name, text in scripts.items()}, members)
    return found


def _member(row: Row, kept: Kept) -> Member:
    path, kind, mode, target, digest = row
    place = kept[str(digest), int(mode) & 0o777] if kind == FILE else None
    return Member(str(path), str(kind), int(mode), str(target), memoryview(b""), place)


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
