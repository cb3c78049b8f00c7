"""The store: immutable objects found by the hash of what they are.

``objects/<kind>/<oid>/`` holds ``payload.json``, the canonical bytes whose sha256 is the oid, and the
content that the payload describes: ``data`` (one file) or ``tree/``.  ``meta.json`` beside them is not part
of the identity (which input made it, what it refers to).  An object appears by one rename, complete, and
is read-only from then on.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

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

KINDS = ("source", "pkg-build", "runtime", "profile", "sandbox-base", "layer")
Payload = dict[str, Value]


@dataclass
class Draft:
    """An object that is being made, in a temporary directory that nobody else looks at."""

    path: Path
    refs: list[str] = field(default_factory=list)
    """``kind/oid`` of every object that this one needs to stay usable."""
    notes: dict[str, str] = field(default_factory=dict)
    """What helps to make the object again (never part of its identity, never a secret)."""

    @property
    def data(self) -> Path:
        return self.path / "data"

    def tree(self) -> TreeWriter:
        return TreeWriter(self.path / "tree")


class Store:
    """All objects under one px home; any number of processes may use it at once."""

    def __init__(self, home: Home):
        self.home = home
        self.stopping = False
        """Set while a command ends early: transfers in other threads end at the next byte, not at the last."""

    def path(self, kind: str, oid: str) -> Path:
        return self.home.objects / kind / oid

    def tree(self, kind: str, oid: str) -> Path:
        return self.path(kind, oid) / "tree"

    def has(self, kind: str, oid: str) -> bool:
        return (self.path(kind, oid) / "payload.json").exists()

    def payload(self, kind: str, oid: str) -> Payload:
        """Read an object's payload, checked against its oid."""
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
            return {}

    def file_of(self, kind: str, oid: str) -> str:
        """The name of the file that an object is or was made of, where that is known: people know no oids."""
        meta = self.meta(kind, oid)
        return str(meta.get("filename") or meta.get("url") or "").rpartition("/")[2]

    def lookup(self, kind: str, key: str) -> str | None:
        """The oid of the object that ``key`` made before, if it is still here."""
        try:
            oid = (self.home.index / kind / key).read_text()
        except FileNotFoundError:
            return None
        if not self.has(kind, oid):
            return None
        self._touch(kind, oid)
        return oid

    def _touch(self, kind: str, oid: str) -> None:
        # The time of last use: garbage collection spares what was used within the grace period.
        try:
            os.utime(self.path(kind, oid) / "meta.json")
        except OSError:
            console.debug(f"cannot touch {kind} {oid}")

    def put(self, kind: str, payload: Payload, *, refs: tuple[str, ...] = ()) -> str:
        """Store an object that is nothing but its payload (a runtime, a profile)."""
        oid = hashlib.sha256(canonical_encode(kind, payload)).hexdigest()

        def make(draft: Draft) -> Payload:
            draft.refs.extend(refs)
            return payload

        return self.ensure(kind, oid, make)

    def ensure(self, kind: str, key: str, make: Callable[[Draft], Payload], *, label: str = "") -> str:
        """Return the oid of the object that ``key`` stands for, making it if it is not there.

        ``key`` names the inputs (for a wheel: its sha256).  However many processes ask at once, one makes
        the object and the others wait for it.
        """
        found = self.lookup(kind, key)
        if found is not None:
            console.debug(f"{kind} {label or key[:12]}: in the store")
            return found
        with disk_errors(self.home.root), self.lock(f"{kind}-{key}", label or f"{kind} {key[:12]}"):
            found = self.lookup(kind, key)
            if found is not None:
                return found
            with self.draft() as draft:
                payload = make(draft)
                oid = self._commit(kind, key, payload, draft)
        return oid

    @contextmanager
    def lock(self, name: str, label: str) -> Iterator[None]:
        def waiting() -> None:
            console.info(f"Waiting for another px process that is making {label} …")

        with locked(self.home.locks / name, on_wait=waiting):
            yield

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """A private directory, gone afterwards whatever happens; what a killed process left is swept first."""
        self.home.tmp.mkdir(parents=True, exist_ok=True)
        sweep(self.home.tmp)
        path = self.home.tmp / f"{os.getpid()}-{os.urandom(6).hex()}"
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
            sync_file_system(draft.path)
            final.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(final)  # a directory without its payload is not an object
            draft.path.rename(final)
            final.chmod(0o555)
        write_atomically(self.home.index / kind / key, oid.encode(), durable=False)
        return oid

    def problems(self, kind: str, oid: str) -> list[str]:
        """What is wrong with an object, read in full: empty when every byte is as the oid says."""
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
        """Every object as (kind, oid), in order."""
        for kind in sorted(p.name for p in self.home.objects.iterdir()) if self.home.objects.is_dir() else ():
            for entry in sorted((self.home.objects / kind).iterdir()):
                yield kind, entry.name

    def discard(self, kind: str, oid: str) -> None:
        """Take an object out of view in one step, then remove it."""
        self.home.tmp.mkdir(parents=True, exist_ok=True)
        grave = self.home.tmp / f"{os.getpid()}-{os.urandom(6).hex()}"
        path = self.path(kind, oid)
        path.chmod(0o755)  # a directory can be moved only by who may write to it
        path.rename(grave)
        remove_tree(grave)


def tree_spec(payload: Payload) -> list[Entry]:
    """The spec of an object's tree; the bases' payload calls it ``fs_tree``."""
    return cast("list[Entry]", payload.get("tree") or payload.get("fs_tree") or [])


def _verify_sizes(root: Path, payload: Payload) -> None:
    # The hashes were taken from the bytes as they were written; a short write shows in the sizes.
    for entry in tree_spec(payload):
        if entry[0] == "f" and os.lstat(native(root / "tree", str(entry[1]))).st_size != entry[3]:
            raise PxError("PX802", kind="draft", oid=root.name, problem=f"{entry[1]} was not written in full")


def sweep(tmp: Path) -> None:
    """Remove what killed processes left: every temporary directory that nobody holds the lock of."""
    for guard in tmp.glob("*.lock"):
        fd = acquire(guard, wait=False)
        if fd is None:
            continue
        remove_tree(guard.with_suffix(""))
        guard.unlink(missing_ok=True)
        os.close(fd)
    for orphan in tmp.iterdir():
        if orphan.suffix != ".lock" and not orphan.with_suffix(".lock").exists() and _old(orphan):
            remove_tree(orphan)


def _old(path: Path) -> bool:
    # A grave of `discard` has no lock; an hour is longer than any removal takes.
    try:
        return time.time() - path.lstat().st_mtime > 3600
    except FileNotFoundError:
        return False
