"""px homes for tests of the sandbox: cold ones that have the downloads, and warm ones that have everything.

Objects of the store are immutable, so a home is cloned by hard links; tests may remove objects of a clone,
and never write into their files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from px.home import Home

EVERYTHING = ("source", "sandbox-base", "layer", "pkg-build", "profile", "runtime")
DOWNLOADS = ("source",)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or not this user's file
        shutil.copy2(source, target, follow_symlinks=False)
    return target


def clone(source: Home, into: Home, kinds: tuple[str, ...] = EVERYTHING, *, uid: int | None = None) -> Home:
    """The objects of some kinds, as another home's own; ``uid`` is who the directories shall belong to."""
    for kind in kinds:
        for place in ("objects", "index"):
            found = source.root / "store" / place / kind
            if found.is_dir():
                target = into.root / "store" / place / kind
                shutil.copytree(found, target, symlinks=True, copy_function=_link, dirs_exist_ok=True)
    if uid is not None:
        give_directories(into.root, uid)
    return into


def give_directories(root: Path, uid: int) -> None:
    """Directories only: the files are other homes' too."""
    for directory, _, _ in os.walk(root):
        os.chown(directory, uid, uid)


def objects(home: Home, kind: str) -> set[str]:
    directory = home.objects / kind
    return {p.name for p in directory.iterdir()} if directory.is_dir() else set()


def leftovers(home: Home) -> list[str]:
    """What an ended px must not leave: drafts of the store and half-made images."""
    places = (home.tmp, home.sandbox / "tmp")
    return [str(path) for place in places if place.is_dir() for path in place.iterdir()]
