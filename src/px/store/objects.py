"""The store: immutable objects, each under the hash of its content.

``objects/<kind>/<oid>/`` holds ``payload.json``, whose sha256 is the oid, and the content that the payload describes:
``data`` (one file) or ``tree/``.  ``meta.json`` says which input made the object and what it refers to; it is not part
of the identity.  An object appears complete, by one rename, and is read-only from then on.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from px import console
from px.errors import PxError
from px.store.canonical import Value, canonical_encode, decode
from px.store.files import disk_errors, sync_file_system, write_atomically
from px.store.locks import acquire, locked
from px.store.tree import Entry, TreeWriter, differences, native, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from px.home import Home

Payload = dict[str, Value]


@dataclass
class Draft:
    """An object that is being made, in a temporary directory of its own."""

    path: Path
    refs: list[str] = field(default_factory=list)
    """``kind/oid`` of the objects that this one needs: garbage collection keeps them with it."""
    notes: dict[str, str] = field(default_factory=dict)
    """Goes into meta.json and helps to make the object again, such as its URL.  It must hold no secrets."""

    @property
    def data(self) -> Path:
        return self.path / "data"

    def tree(self) -> TreeWriter:
        return TreeWriter(self.path / "tree")


class Remote(Protocol):
    """A place that may have objects which this store lacks."""

    def take(self, store: Store, kind: str, key: str) -> str | None:
        """Bring the object into the store and return its oid; None if that is not possible."""


class Store:
    """All objects under one px home.  Any number of processes may use it at once."""

    def __init__(self, home: Home, *, offline: bool = False):
        self.home = home
        self.offline = offline
        """If true, nothing is downloaded: an object that is missing is an error."""
        self.stopping = False
        """Set when a command fails or is interrupted: downloads in other threads then stop early."""
        self.remote: Remote | None = None
        """Asked for objects that are not here, before they are made."""
        self.used: dict[tuple[str, str], str] = {}
        """Kind and key -> oid of every object that was asked for and is here."""

    def path(self, kind: str, oid: str) -> Path:
        return self.home.objects / kind / oid

    def tree(self, kind: str, oid: str) -> Path:
        return self.path(kind, oid) / "tree"

    def has(self, kind: str, oid: str) -> bool:
        # Objects appear by a rename, so payload.json stands for the whole object.
        return (self.path(kind, oid) / "payload.json").exists()

    def payload(self, kind: str, oid: str) -> Payload:
        """Read an object's payload and check it against the oid."""
        try:
            encoded = (self.path(kind, oid) / "payload.json").read_bytes()
        except FileNotFoundError:
            raise PxError("PX801", kind=kind, oid=oid) from None
        if hashlib.sha256(encoded).hexdigest() != oid:
            raise PxError("PX802", kind=kind, oid=oid, problem="payload.json does not hash to the oid")
        return cast("Payload", decode(encoded)[1])

    def meta(self, kind: str, oid: str) -> dict[str, object]:
        try:
            return cast("dict[str, object]", json.loads((self.path(kind, oid) / "meta.json").read_bytes()))
        except (FileNotFoundError, ValueError):
            # Nothing in meta.json is essential: an object without it is still whole.
            return {}

    def file_of(self, kind: str, oid: str) -> str:
        """The file name of what an object was made from, if known.  It tells people more than an oid."""
        meta = self.meta(kind, oid)
        return str(meta.get("filename") or meta.get("url") or "").rpartition("/")[2]

    def lookup(self, kind: str, key: str, *, ask: bool = True) -> str | None:
        """The oid of the object that was made from ``key``, if the store still has it, or the remote one does."""
        oid = self._local(kind, key)
        if oid is None and ask and self.remote is not None and not self.offline:
            oid = self.remote.take(self, kind, key)
        if oid is not None:
            self.used[kind, key] = oid
        return oid

    def _local(self, kind: str, key: str) -> str | None:
        try:
            oid = (self.home.index / kind / key).read_text()
        except FileNotFoundError:
            return None
        # Garbage collection removes objects but leaves their keys in the index.
        if not self.has(kind, oid):
            return None
        self._touch(kind, oid)
        return oid

    def accept(self, kind: str, key: str, payload: Payload, fill: Callable[[Draft], None]) -> str:
        """Store an object that was made elsewhere.  ``fill`` writes its content, and checks it against the payload."""
        # Not the lock of `ensure`, which may be held by this very thread.
        with disk_errors(self.home.root), self.lock(f"take-{kind}-{key}", f"{kind} {key[:12]}"), self.draft() as draft:
            fill(draft)
            return self._commit(kind, key, payload, draft)

    def _touch(self, kind: str, oid: str) -> None:
        # This is the time of last use.  Garbage collection keeps what was used within the grace period.
        try:
            os.utime(self.path(kind, oid) / "meta.json")
        except OSError:
            # The home may belong to another user (a shared, read-only store).
            console.debug(f"cannot touch {kind} {oid}")

    def put(self, kind: str, payload: Payload, *, refs: tuple[str, ...] = ()) -> str:
        """Store an object that consists of its payload only (a runtime, a profile)."""
        oid = hashlib.sha256(canonical_encode(kind, payload)).hexdigest()

        def make(draft: Draft) -> Payload:
            draft.refs.extend(refs)
            return payload

        return self.ensure(kind, oid, make)

    def ensure(self, kind: str, key: str, make: Callable[[Draft], Payload], *, label: str = "") -> str:
        """Return the oid of the object for ``key``; call ``make`` if the store does not have it.

        ``key`` stands for the inputs (for a wheel: its sha256).  If several processes ask at once, one makes the
        object and the others wait for it.
        """
        found = self.lookup(kind, key)
        if found is not None:
            console.debug(f"{kind} {label or key[:12]}: in the store")
            return found
        with disk_errors(self.home.root), self.lock(f"{kind}-{key}", label or f"{kind} {key[:12]}"):
            # Another process may have made it while this one waited for the lock.
            found = self.lookup(kind, key)
            if found is not None:
                return found
            with self.draft() as draft, console.waiting(f"Making {label or kind}"):
                payload = make(draft)
                oid = self._commit(kind, key, payload, draft)
        return oid

    @contextmanager
    def lock(self, name: str, label: str) -> Iterator[None]:
        with locked(self.home.locks / name, f"Waiting for another px process that is making {label}"):
            yield

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """A private directory that is removed after the block.  First removes what killed processes left."""
        self.home.tmp.mkdir(parents=True, exist_ok=True)
        sweep(self.home.tmp)
        path = self.home.tmp / f"{os.getpid()}-{os.urandom(6).hex()}"
        # The lock tells `sweep` in other processes that this directory is in use.
        guard = acquire(path.with_suffix(".lock"))
        try:
            path.mkdir()
            yield Draft(path)
        finally:
            remove_tree(path)
            path.with_suffix(".lock").unlink(missing_ok=True)
            if guard is not None:
                os.close(guard)

    def _commit(self, kind: str, key: str, payload: Payload, draft: Draft) -> str:
        encoded = canonical_encode(kind, payload)
        oid = hashlib.sha256(encoded).hexdigest()
        final = self.path(kind, oid)
        if not self.has(kind, oid):
            write_atomically(draft.path / "payload.json", encoded, mode=0o444, durable=False)
            meta = {"key": key, "refs": sorted(draft.refs), "made": int(time.time()), **draft.notes}
            write_atomically(draft.path / "meta.json", json.dumps(meta).encode(), durable=False)
            _verify_sizes(draft.path, payload)
            # Flushed before the rename: after a power failure an object must not exist with empty files.
            sync_file_system(draft.path)
            final.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(final)  # a directory without payload.json is not an object
            draft.path.rename(final)
            # After the rename: only a user who may write to a directory can move it.
            final.chmod(0o555)
        # Written in any case: different inputs can give the same object, and each has its own key.
        write_atomically(self.home.index / kind / key, oid.encode(), durable=False)
        self.used[kind, key] = oid
        return oid

    def problems(self, kind: str, oid: str) -> list[str]:
        """Read the whole object and return what is wrong with it; an empty list means that it is intact."""
        try:
            payload = self.payload(kind, oid)
        except PxError as e:
            return [e.what]
        root = self.path(kind, oid)
        found = []
        if "tree" in payload or "fs_tree" in payload:
            found += list(differences(root / "tree", tree_spec(payload)))
        if "sha256" in payload:
            with (root / "data").open("rb") as f:
                actual = hashlib.file_digest(f, "sha256").hexdigest()
            if actual != payload["sha256"]:
                found.append(f"data: sha256 is {actual}, not {payload['sha256']}")
        return found

    def objects(self) -> Iterator[tuple[str, str]]:
        """Every object as (kind, oid), sorted."""
        for kind in sorted(p.name for p in self.home.objects.iterdir()) if self.home.objects.is_dir() else ():
            for entry in sorted((self.home.objects / kind).iterdir()):
                yield kind, entry.name

    def discard(self, kind: str, oid: str) -> None:
        """Remove an object.  A rename hides it in one step, so that nobody finds half of it."""
        self.home.tmp.mkdir(parents=True, exist_ok=True)
        grave = self.home.tmp / f"{os.getpid()}-{os.urandom(6).hex()}"
        path = self.path(kind, oid)
        if not path.exists():
            return
        path.chmod(0o755)  # only a user who may write to a directory can move it
        path.rename(grave)
        remove_tree(grave)


def tree_spec(payload: Payload) -> list[Entry]:
    """The spec of an object's tree.  In the payload of a base it is called ``fs_tree``."""
    return cast("list[Entry]", payload.get("tree") or payload.get("fs_tree") or [])


def _verify_sizes(root: Path, payload: Payload) -> None:
    # The hashes are those of the bytes that were written.  If the disk kept fewer of them, the sizes show it.
    for entry in tree_spec(payload):
        if entry[0] == "f" and os.lstat(native(root / "tree", str(entry[1]))).st_size != entry[3]:
            raise PxError("PX802", kind="draft", oid=root.name, problem=f"{entry[1]} was not written in full")


def sweep(tmp: Path) -> None:
    """Remove what killed processes left: every temporary directory whose lock is free."""
    for guard in tmp.glob("*.lock"):
        fd = acquire(guard, wait=False)
        if fd is None:
            continue
        # The lock goes last: while the directory is there, its lock says who may remove it.
        remove_tree(guard.with_suffix(""))
        guard.unlink(missing_ok=True)
        os.close(fd)
    for orphan in tmp.iterdir():
        if orphan.suffix != ".lock" and not orphan.with_suffix(".lock").exists() and _old(orphan):
            remove_tree(orphan)


def _old(path: Path) -> bool:
    # `discard` moves objects here without a lock.  An hour is longer than any removal takes.
    try:
        return time.time() - path.lstat().st_mtime > 3600
    except FileNotFoundError:
        return False
