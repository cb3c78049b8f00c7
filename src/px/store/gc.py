"""Garbage collection: remove what no project, image or running process needs any more.

The roots are the records under ``PX_HOME/refs`` (one for each project), the envs and images that a running process
uses, and everything that was used within the grace period.  Whatever a root refers to, directly or through other
objects, stays.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from px import console, foreign
from px.home import KEPT
from px.store.locks import collection, collection_off
from px.store.objects import sweep
from px.store.tree import remove_tree
from px.warm.hold import acquire, use_lock
from px.warm.record import record_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.store.objects import Store

DEFAULT_GRACE = 14 * 24 * 3600


@dataclass(frozen=True)
class Garbage:
    """One thing that can be removed, and the reason."""

    what: str
    path: Path
    size: int
    reason: str


def collect(store: Store, *, grace: int, dry_run: bool) -> list[Garbage]:
    """Remove what is not needed and return the list; with ``dry_run`` only return the list.

    No build runs at the same time, because builders hold the same lock, shared.  A dry run removes nothing, so it waits
    for nobody: what is being built meanwhile is new, and stays.
    """
    if dry_run:
        with collection_off(store.home), console.waiting("Looking for what nothing uses"):
            return _Collector(store, grace).garbage()
    with collection(store.home), console.waiting("Removing what nothing uses"):
        found = _Collector(store, grace).garbage()
        for item in found:
            _remove(store, item)
        if store.home.tmp.is_dir():
            sweep(store.home.tmp)
    return found


def _remove(store: Store, item: Garbage) -> None:
    console.detail(f"removing {item.what} ({item.reason})")
    # Objects are read-only, and need the store's own way to be moved.
    if item.path.parent.parent == store.home.objects:
        store.discard(item.path.parent.name, item.path.name)
    else:
        # Renamed first, so that no other process finds half an env.
        grave = item.path.with_name(f".{item.path.name}.gone")
        item.path.rename(grave)
        if item.path.parent == store.home.caches:
            foreign.remove(grave)
        else:
            remove_tree(grave)


class _Collector:
    """One pass over the px home: marks what is in use, then lists the rest."""

    def __init__(self, store: Store, grace: int):
        self.store = store
        self.home = store.home
        self.before = time.time() - grace
        self.live_objects: set[str] = set()
        self.live_paths: set[str] = set()

    def garbage(self) -> list[Garbage]:
        # The order matters: records name envs and images, those name objects, and objects name other objects.
        found = list(self._records())
        self._mark_images()
        self._mark_objects()
        found += self._directories(self.home.envs, "env")
        found += self._directories(self.home.sandbox / "images", "image")
        found += self._bases()
        found += self._objects()
        found += self._packed()
        found += self._caches()
        found += self._project_caches()
        return found

    def _old(self, path: Path) -> bool:
        try:
            return path.lstat().st_mtime <= self.before
        except FileNotFoundError:
            return False

    def _records(self) -> Iterator[Garbage]:
        """Mark what projects use.  If a project is gone, its record is garbage itself."""
        for path in sorted(self.home.refs.glob("*.json")) if self.home.refs.is_dir() else ():
            try:
                record: dict[str, Any] = json.loads(path.read_bytes())
                root, envs = record["root"], record["envs"].values()
                gone = not os.path.exists(os.path.join(root, "pyproject.toml"))
            # The next sync of the project writes a new record.
            except (OSError, ValueError, KeyError):
                yield Garbage(f"record {path.stem}", path, size_of(path), "it cannot be read")
                continue
            # px names records after the project's path, and never reads one that has another name.
            if path.name != record_name(root):
                yield Garbage(f"record {path.stem}", path, size_of(path), "an older px wrote it")
                continue
            if gone and self._old(path):
                yield Garbage(f"record of {root}", path, size_of(path), "the project is gone")
                continue
            for env in envs:
                self.live_paths.add(env["directory"])
                self.live_objects.update(env["objects"])

    def _mark_images(self) -> None:
        """Keep the objects of the images and envs that are in use or new."""
        for directory in (self.home.sandbox / "images", self.home.envs):
            for path in _children(directory):
                if _in_use(path) or not self._old(path):
                    self.live_paths.add(os.fspath(path))
                if os.fspath(path) in self.live_paths:
                    self.live_objects.update(_objects_of(path))

    def _mark_objects(self) -> None:
        # The store touches meta.json whenever it finds an object: its time is the time of last use.
        for kind, oid in self.store.objects():
            if not self._old(self.store.path(kind, oid) / "meta.json"):
                self.live_objects.add(f"{kind}/{oid}")
        pending = list(self.live_objects)
        while pending:
            kind, _, oid = pending.pop().partition("/")
            for ref in self.store.meta(kind, oid).get("refs", ()):  # type: ignore[attr-defined]
                if ref not in self.live_objects:
                    self.live_objects.add(ref)
                    pending.append(ref)

    def _directories(self, directory: Path, word: str) -> Iterator[Garbage]:
        for path in _children(directory):
            if os.fspath(path) not in self.live_paths:
                yield Garbage(f"{word} {path.name}", path, size_of(path), "no project uses it")

    def _bases(self) -> Iterator[Garbage]:
        for path in _children(self.home.sandbox / "bases"):
            # These directories only show a base to people (a manifest and a link); the base itself is an object.
            if f"sandbox-base/{path.name}" not in self.live_objects:
                yield Garbage(f"base {path.name}", path, size_of(path), "no image uses it")

    def _objects(self) -> Iterator[Garbage]:
        for kind, oid in self.store.objects():
            if f"{kind}/{oid}" not in self.live_objects:
                path = self.store.path(kind, oid)
                what = f"{kind} {oid} {self.store.file_of(kind, oid)}".rstrip()
                yield Garbage(what, path, size_of(path), "nothing refers to it")

    def _packed(self) -> Iterator[Garbage]:
        """Old notes about packed images, and old blobs that no newer note names."""
        # Packing an image again writes its note again: the note's time is the time of the last packing.
        live: set[str] = set()
        for note in _children(self.home.sandbox / "packed"):
            if self._old(note):
                yield Garbage(f"packed image {note.stem[:12]}", note, size_of(note), "not packed for a long time")
            else:
                live.update(str(blob).removeprefix("sha256:") for blob in json.loads(note.read_bytes())["blobs"])
        for blob in _children(self.home.sandbox / "blobs" / "sha256"):
            if blob.name not in live and self._old(blob):
                yield Garbage(f"blob {blob.name}", blob, size_of(blob), "no packed image uses it")

    def _caches(self) -> Iterator[Garbage]:
        """Old entries of all caches, including those that only an older px knows."""
        for cache in _children(self.home.root / "cache"):
            for path in _children(cache) if cache.name not in KEPT else ():
                if self._old(path):
                    yield Garbage(f"cache {cache.name}/{path.name}", path, size_of(path), "not used for a long time")

    def _project_caches(self) -> Iterator[Garbage]:
        """The caches of sandboxes that were not used for a long time, or whose project is gone as long."""
        for path in _children(self.home.caches):
            if self._old(path) and not _in_use(path):
                yield Garbage(f"cache of {path.name}", path, size_of(path), "not used for a long time")


def _children(directory: Path) -> list[Path]:
    # Names with a dot are px's own: .locks, and what an earlier collection was removing (.NAME.gone).
    return sorted(p for p in directory.iterdir() if not p.name.startswith(".")) if directory.is_dir() else []


def _in_use(path: Path) -> bool:
    """Whether a process runs in this env or image.

    ``px run`` holds a shared lock as long as its target lives (see :func:`px.warm.hold.hold_across_exec`).
    """
    lock = use_lock(os.fspath(path))
    if not os.path.exists(lock):
        return False
    # An exclusive lock cannot be had while anybody holds a shared one.
    fd = acquire(lock, wait=False)
    if fd is None:
        return True
    os.close(fd)
    return False


def _objects_of(path: Path) -> list[str]:
    """The objects that an image or env consists of, from its own manifest: a running one may have no record."""
    for marker in ("manifest.json", "px-env.json"):
        try:
            raw: dict[str, Any] = json.loads((path / marker).read_bytes())
        except (OSError, ValueError):
            continue
        return list(raw.get("objects", ()))
    return []


def size_of(path: Path) -> int:
    """The bytes that removing ``path`` would free.

    Envs and objects share files by hard links.  A file with several names frees nothing, so it does not count.
    """
    if path.is_symlink() or not path.is_dir():
        try:
            return path.lstat().st_size
        except FileNotFoundError:  # a builder removed it meanwhile
            return 0
    total = 0
    pending = [os.fsencode(path)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:  # a sandbox makes paths of any length
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    st = entry.stat(follow_symlinks=False)
                    total += st.st_size if st.st_nlink == 1 else 0
    return total
