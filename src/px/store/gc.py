"""Garbage collection: what no project, image or running process needs goes, after a grace period.

The roots are the records under ``PX_HOME/refs`` (one per project), envs and images in use by a running
process, and whatever was used within the grace period.  Anything that a root refers to, directly or
through other objects, stays.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from px import console
from px.store.hold import acquire, use_lock
from px.store.locks import locked
from px.store.objects import sweep
from px.store.tree import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.store.objects import Store

DEFAULT_GRACE = 14 * 24 * 3600
_CACHES = ("selections", "interpreters", "editables", "archives", "metaflow")


@dataclass(frozen=True)
class Garbage:
    """One thing that can go, and why."""

    what: str
    path: Path
    size: int
    reason: str


def collect(store: Store, *, grace: int, dry_run: bool) -> list[Garbage]:
    """Remove what is not needed and return it; with ``dry_run`` only say what would go.

    No build runs meanwhile: builders hold the same lock shared.
    """

    def waiting() -> None:
        console.info("Waiting for a px process that is building …")

    with locked(store.home.locks / "gc", on_wait=waiting):
        found = _Collector(store, grace).garbage()
        if not dry_run:
            for item in found:
                _remove(store, item)
            if store.home.tmp.is_dir():
                sweep(store.home.tmp)
    return found


def _remove(store: Store, item: Garbage) -> None:
    console.detail(f"removing {item.what} ({item.reason})")
    if item.path.parent.parent == store.home.objects:
        store.discard(item.path.parent.name, item.path.name)
    else:
        # Renamed first: nobody sees half of it.
        grave = item.path.with_name(f".{item.path.name}.gone")
        item.path.rename(grave)
        remove_tree(grave)


class _Collector:
    """One look at everything that could go."""

    def __init__(self, store: Store, grace: int):
        self.store = store
        self.home = store.home
        self.before = time.time() - grace
        self.live_objects: set[str] = set()
        self.live_paths: set[str] = set()

    def garbage(self) -> list[Garbage]:
        found = list(self._records())
        self._mark_images()
        self._mark_objects()
        found += self._directories(self.home.envs, "env")
        found += self._directories(self.home.sandbox / "images", "image")
        found += self._bases()
        found += self._objects()
        found += self._packed()
        found += self._caches()
        return found

    def _old(self, path: Path) -> bool:
        try:
            return path.lstat().st_mtime <= self.before
        except FileNotFoundError:
            return False

    def _records(self) -> Iterator[Garbage]:
        """Mark what projects use; the record of a project that is gone is garbage itself."""
        for path in sorted(self.home.refs.glob("*.json")) if self.home.refs.is_dir() else ():
            try:
                record: dict[str, Any] = json.loads(path.read_bytes())
                root, envs = record["root"], record["envs"].values()
                gone = not os.path.exists(os.path.join(root, "pyproject.toml"))
            except (OSError, ValueError, KeyError):
                yield Garbage(f"record {path.stem}", path, path.stat().st_size, "it cannot be read")
                continue
            if gone and self._old(path):
                yield Garbage(f"record of {root}", path, path.stat().st_size, "the project is gone")
                continue
            for env in envs:
                self.live_paths.add(env["env"])
                self.live_objects.update(env["objects"])

    def _mark_images(self) -> None:
        """Images and envs that a running process holds keep what they are made of."""
        for directory in (self.home.sandbox / "images", self.home.envs):
            for path in _children(directory):
                if _in_use(path) or not self._old(path):
                    self.live_paths.add(os.fspath(path))
                if os.fspath(path) in self.live_paths:
                    self.live_objects.update(_objects_of(path))

    def _mark_objects(self) -> None:
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
            if f"sandbox-base/{path.name}" not in self.live_objects:
                yield Garbage(f"base {path.name}", path, size_of(path), "no image uses it")

    def _objects(self) -> Iterator[Garbage]:
        for kind, oid in self.store.objects():
            if f"{kind}/{oid}" not in self.live_objects:
                path = self.store.path(kind, oid)
                what = f"{kind} {oid} {self.store.file_of(kind, oid)}".rstrip()
                yield Garbage(what, path, size_of(path), "nothing refers to it")

    def _packed(self) -> Iterator[Garbage]:
        """Packed images: a note for each, and the blobs that no note within the grace period speaks of."""
        live: set[str] = set()
        for note in _children(self.home.sandbox / "packed"):
            if self._old(note):
                yield Garbage(f"packed image {note.stem[:12]}", note, note.stat().st_size, "not packed for long")
            else:
                live.update(str(blob).removeprefix("sha256:") for blob in json.loads(note.read_bytes())["blobs"])
        for blob in _children(self.home.sandbox / "blobs" / "sha256"):
            if blob.name not in live and self._old(blob):
                yield Garbage(f"blob {blob.name}", blob, blob.stat().st_size, "no packed image uses it")

    def _caches(self) -> Iterator[Garbage]:
        for name in _CACHES:
            for path in _children(self.home.cache / name):
                if self._old(path):
                    yield Garbage(f"cache {name}/{path.name}", path, size_of(path), "not used for long")


def _children(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if not p.name.startswith(".")) if directory.is_dir() else []


def _in_use(path: Path) -> bool:
    """``px run`` keeps a shared lock for as long as its target lives (see :func:`hold_across_exec`)."""
    lock = use_lock(os.fspath(path))
    if not os.path.exists(lock):
        return False
    fd = acquire(lock, wait=False)
    if fd is None:
        return True
    os.close(fd)
    return False


def _objects_of(path: Path) -> list[str]:
    """What an image or env says that it is made of, for those that no record speaks of."""
    for marker in ("manifest.json", "px-env.json"):
        try:
            raw: dict[str, Any] = json.loads((path / marker).read_bytes())
        except (OSError, ValueError):
            continue
        return list(raw.get("objects", ()))
    return []


def size_of(path: Path) -> int:
    """Bytes on disk that removing ``path`` would free: files that other names share do not count."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    pending = [os.fsencode(path)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    st = entry.stat(follow_symlinks=False)
                    total += st.st_size if st.st_nlink == 1 else 0
    return total
