"""From pinned .apk files to a tree, with what their scripts would have done."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from px import console
from px.alpine.apk import read_apk
from px.alpine.relock import mirror
from px.debian.archive import BadArchiveError, Deb
from px.debian.build import build_error
from px.debian.download import ensure_packages
from px.debian.fixups.accounts import HOME, UID, USER
from px.debian.fixups.files import mount_points
from px.debian.image import Below, Image
from px.debian.unpack import BadPackageError, Unpacked, unpack_all
from px.store.sources import discard_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.canonical import Value
    from px.store.objects import Store
    from px.store.tree import TreeWriter

_BUSYBOX = "bin/busybox"


def build_base(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], writer: TreeWriter, *, offline: bool
) -> list[Value]:
    """Write a base's tree and return its spec."""
    image = Image(writer)
    unpacked = _unpack(store, lock, packages, image, offline=offline)
    busybox_links(image)
    account(image)
    installed(image, unpacked)
    mount_points(image, unpacked)
    return writer.finish()


def build_layer(
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    writer: TreeWriter,
    below: Sequence[Below],
    *,
    offline: bool,
) -> list[Value]:
    """Write what ``packages`` add to the layers below; musl's loader has no cache to bring up to date."""
    image = Image(writer, below)
    installed(image, _unpack(store, lock, packages, image, offline=offline))
    return writer.finish()


def busybox_links(image: Image) -> None:
    """The names under which busybox is called; its package lists them and leaves the links to a trigger."""
    for name in image.listing("etc/busybox-paths.d"):
        for line in image.read(f"etc/busybox-paths.d/{name}").decode("ascii").splitlines():
            path = line.strip().lstrip("/")
            if path and path not in image:
                image.link(path, f"/{_BUSYBOX}")


def account(image: Image) -> None:
    """The user of uid 1000, after those that alpine-baselayout ships."""
    rows = (
        ("passwd", f"{USER}:x:{UID}:{UID}::{HOME}:/bin/sh"),
        ("group", f"{USER}:x:{UID}:"),
        ("shadow", f"{USER}:!::0:::::"),
    )
    for name, row in rows:
        if f"etc/{name}" in image:
            before = image.read(f"etc/{name}")
            image.file(f"etc/{name}", before + row.encode() + b"\n", 0o640 if name == "shadow" else 0o644)
    image.directory(HOME.lstrip("/"))


def installed(image: Image, packages: Sequence[Unpacked]) -> None:
    """apk's database, which scanners read: name, version and architecture of every package."""
    path = "lib/apk/db/installed"
    before = image.read(path) if path in image else b""
    rows = [f"P:{u.package.name}\nV:{u.package.version}\nA:{u.package.architecture}\n\n" for u in packages]
    image.file(path, before + "".join(rows).encode())


def load(package: PinnedPackage, path: Path) -> Deb:
    """Read an .apk that is still what the lock pins, in the shape that the unpacker takes."""
    content = path.read_bytes()
    if len(content) != package.size or sha256(content).hexdigest() != package.sha256:
        raise BadPackageError(package, "its .apk in the store is not what the lock pins", damaged=True)
    try:
        apk = read_apk(content)
    except (BadArchiveError, ValueError) as e:
        raise BadPackageError(package, str(e)) from e
    replaces = ", ".join(row.split("=")[0].split("<")[0].split(">")[0] for row in apk.info.get("replaces", []))
    control = f"Package: {apk.one('pkgname')}\nVersion: {apk.one('pkgver')}\nReplaces: {replaces}\n"
    return Deb({"control": control.encode()}, apk.data)


def _unpack(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image, *, offline: bool
) -> list[Unpacked]:
    sources = () if offline and not os.environ.get("PX_ALPINE_MIRROR") else (mirror(lock.name),)
    paths = ensure_packages(store, lock, packages, offline=offline, sources=sources)
    try:
        with console.progress(f"Unpacking {len(packages)} Alpine packages", sum(p.size for p in packages)) as bar:
            return unpack_all(image, packages, lambda p: paths[p.name], lambda p: bar.advance(p.size), load)
    except BadPackageError as e:
        if e.damaged:
            discard_source(store, e.package.sha256)
        raise build_error(lock, e) from e
