"""Builds the tree of an Alpine base or layer from pinned .apk files, without running their scripts."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from px import console
from px.alpine.apk import read_apk
from px.alpine.fixups import BASE, LAYER
from px.alpine.mirror import mirrors
from px.debian.archive import DIRECTORY, BadArchiveError, Deb, members
from px.debian.build import build_error
from px.debian.download import ensure_packages
from px.debian.unpack import BadPackageError, Reading, Unpacked, unpack_all
from px.store.sources import discard_source, find_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.alpine.apk import Apk
    from px.debian.image import Image
    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.canonical import Value
    from px.store.objects import Store


def build_base(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Value]:
    """Write a base's tree and return its spec."""
    unpacked = _unpack(store, lock, packages, image)
    for fix_up in BASE:
        fix_up(image, unpacked)
    return image.finish()


def build_layer(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Value]:
    """Write what ``packages`` add to the layers below.  No ld.so.cache is needed: musl's loader has none."""
    unpacked = _unpack(store, lock, packages, image)
    for fix_up in LAYER:
        fix_up(image, unpacked)
    return image.finish()


def load(package: PinnedPackage, path: Path) -> Deb:
    """Read an .apk, which must have the size and hash of the lock, and return it in the form of a .deb.

    So both distributions share one unpacker, with its checks.
    """
    content = path.read_bytes()
    if len(content) != package.size or sha256(content).hexdigest() != package.sha256:
        raise BadPackageError(package, "its .apk in the store is not what the lock pins", damaged=True)
    try:
        apk = read_apk(content)
        files = [member.path for member in members(apk.data) if member.kind != DIRECTORY]
    except (BadArchiveError, ValueError) as e:
        raise BadPackageError(package, str(e)) from e
    listed = "".join(f"{'':34}{name}\n" for name in files if "\n" not in name)
    return Deb({"control": _control(apk), "md5sums": listed.encode("utf-8", "surrogateescape")}, apk.data)


def _control(apk: Apk) -> bytes:
    """What .PKGINFO says, in Debian's words."""
    # A Replaces field of Debian without the versions: the unpacker uses the names only.
    replaces = ", ".join(row.split("=")[0].split("<")[0].split(">")[0] for row in apk.info.get("replaces", []))
    rows = {
        "Package": apk.one("pkgname"),
        "Version": apk.one("pkgver"),
        "Architecture": apk.one("arch"),
        "Source": apk.one("origin"),
        "License": apk.one("license"),
        "Description": apk.one("pkgdesc"),
        "Homepage": apk.one("url"),
        "Replaces": replaces,
    }
    return "".join(f"{name}: {value}\n" for name, value in rows.items() if value).encode()


def _unpack(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], image: Image) -> list[Unpacked]:
    # Packages that are in the store need no mirror; without one `mirrors` would raise.
    here = store.offline or all(find_source(store, p.sha256) for p in packages)
    paths = ensure_packages(store, lock, packages, () if here else mirrors(lock.name))
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
