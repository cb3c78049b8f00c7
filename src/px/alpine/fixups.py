"""The work of Alpine's install scripts and triggers, as functions that only read and write the tree."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from px.debian.deb822 import parse_stanza
from px.debian.fixups.accounts import HOME, UID, USER
from px.debian.fixups.files import mount_points

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.fixups import FixUp
    from px.debian.image import Image
    from px.debian.unpack import Unpacked

INSTALLED = "lib/apk/db/installed"
_BUSYBOX = "bin/busybox"
_COMMAND = re.compile(r"/?((?:usr/)?s?bin/[\w.\[+-]+)", re.ASCII)
_DIRECTORIES = (("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700))
# The letters of apk's database, and the field that each has in a control file as px reads it.
_LETTERS = {
    "P": "Package", "V": "Version", "A": "Architecture", "T": "Description", "U": "Homepage", "L": "License",
    "o": "Source",
}  # fmt: skip


def busybox_links(image: Image, _: Sequence[Unpacked]) -> None:
    """Make the links to busybox for its commands.  Its package only lists them; a trigger makes the links."""
    for name in image.listing("etc/busybox-paths.d"):
        for line in image.read(f"etc/busybox-paths.d/{name}").decode("ascii", "replace").splitlines():
            found = _COMMAND.fullmatch(line.strip())
            # A package such as coreutils may bring the real program: it wins over busybox.
            if found and found[1] not in image:
                image.link(found[1], f"/{_BUSYBOX}")


def account(image: Image, _: Sequence[Unpacked]) -> None:
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


def directories(image: Image, _: Sequence[Unpacked]) -> None:
    """Make the directories over which engines mount, if no package has them."""
    for path, mode in _DIRECTORIES:
        if path not in image:
            image.directory(path, mode)


def installed(image: Image, packages: Sequence[Unpacked]) -> None:
    """Add the packages and their files to apk's database, which scanners read, and px's own link check."""
    before = image.read(INSTALLED) if INSTALLED in image else b""
    rows = ["".join(f"{line}\n" for line in _rows(image, unpacked)) + "\n" for unpacked in packages]
    image.file(INSTALLED, before + "".join(rows).encode("utf-8", "surrogateescape"))


def _rows(image: Image, unpacked: Unpacked) -> Iterator[str]:
    fields = parse_stanza(unpacked.control.decode("utf-8", "replace"))
    yield from (f"{letter}:{fields[name]}" for letter, name in _LETTERS.items() if fields.get(name))
    # As in dpkg's lists, a line has 34 letters in front of the path.  Files that px leaves out are not listed.
    paths = (line[34:] for line in unpacked.md5sums.decode("utf-8", "surrogateescape").splitlines())
    kept = sorted(path.rpartition("/")[::2] for path in paths if path in image)
    for directory, found in groupby(kept, key=lambda pair: pair[0]):
        yield f"F:{directory}"
        yield from (f"R:{name}" for _, name in found)


BASE: tuple[FixUp, ...] = (busybox_links, account, directories, installed, mount_points)
LAYER: tuple[FixUp, ...] = (installed,)
