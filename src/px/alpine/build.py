"""Builds the tree of an Alpine base or layer from pinned .apk files, without running their scripts."""

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
from px.debian.unpack import BadPackageError, Reading, Unpacked, unpack_all
from px.store.sources import discard_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.debian.image import Image
    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.canonical import Value
    from px.store.objects import Store

_BUSYBOX = "bin/busybox"


def build_base(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Value]:
    """Write a base's tree and return its spec."""
    unpacked = _unpack(store, lock, packages, image)
    busybox_links(image)
    account(image)
    installed(image, unpacked)
    mount_points(image, unpacked)
    return image.finish()


def build_layer(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Value]:
    """Write what ``packages`` add to the layers below.  No ld.so.cache is needed: musl's loader has none."""
    installed(image, _unpack(store, lock, packages, image))
    return image.finish()


def busybox_links(image: Image) -> None:
    """Make the links to busybox for its commands.  Its package only lists them; a trigger makes the links."""
    for name in image.listing("etc/busybox-paths.d"):
        for line in image.read(f"etc/busybox-paths.d/{name}").decode("ascii").splitlines():
            path = line.strip().lstrip("/")
            # A package such as coreutils may bring the real program: it wins over busybox.
            if path and path not in image:
                image.link(path, f"/{_BUSYBOX}")


def account(image: Image) -> None:
    """Add the user of uid 1000 to those of alpine-baselayout."""
    # "!" as the password: nobody can log in with one.  The date of the last change is empty, as on Debian's side.
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
    """Add the packages to apk's database, which scanners read: name, version and architecture of each."""
    path = "lib/apk/db/installed"
    before = image.read(path) if path in image else b""
    rows = [f"P:{u.package.name}\nV:{u.package.version}\nA:{u.package.architecture}\n\n" for u in packages]
    image.file(path, before + "".join(rows).encode())


def load(package: PinnedPackage, path: Path) -> Deb:
    """Read an .apk, which must have the size and hash of the lock, and return it in the form of a .deb.

    So both distributions share one unpacker, with its checks.
    """
    content = path.read_bytes()
    if len(content) != package.size or sha256(content).hexdigest() != package.sha256:
        raise BadPackageError(package, "its .apk in the store is not what the lock pins", damaged=True)
    try:
        apk = read_apk(content)
    except (BadArchiveError, ValueError) as e:
        raise BadPackageError(package, str(e)) from e
    # A Replaces field of Debian without the versions: the unpacker uses the names only.
    replaces = ", ".join(row.split("=")[0].split("<")[0].split(">")[0] for row in apk.info.get("replaces", []))
    control = f"Package: {apk.one('pkgname')}\nVersion: {apk.one('pkgver')}\nReplaces: {replaces}\n"
    return Deb({"control": control.encode()}, apk.data)


def _unpack(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Unpacked]:
    # Offline, packages that are in the store need no mirror; without one `mirror` would raise.
    sources = () if store.offline and not os.environ.get("PX_ALPINE_MIRROR") else (mirror(lock.name),)
    paths = ensure_packages(store, lock, packages, sources)
    try:
        with console.progress(
            f"Unpacking {console.counted(len(packages), 'Alpine package')}", sum(p.size for p in packages)
        ) as bar:
            return unpack_all(
                image, packages, lambda p: paths[p.name], Reading(load, on_done=lambda p: bar.advance(p.size))
            )
    except BadPackageError as e:
        if e.damaged:
            discard_source(store, e.package.sha256)
        raise build_error(lock, e) from e
