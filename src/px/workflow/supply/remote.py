"""Asking the shared cache: a registry that has objects of the store, each under a tag of its own.

All objects of a project, as it is, are under one more tag: the first object that is missing brings them all, in
parallel.  What arrives is checked against its id.  If the cache is down, slow or wrong, px says so once and builds.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3

from px import __version__, bounds, console
from px.debian.lock import encode
from px.debian.locking.release import UntrustedError, verify
from px.errors import PxError
from px.http import FetchError, Http
from px.oci.documents import NOT_VALID
from px.oci.objects import KINDS, DamagedError, ObjectName, documents_in, take, take_all
from px.oci.registry.client import Registry, RegistryError
from px.oci.registry.reference import Reference, parse
from px.oci.sources import RegistrySource
from px.sandbox.definition import SBX_VERSION
from px.sandbox.layers.base import load_base_lock
from px.sandbox.manifest import governing_manifest
from px.store.canonical import oid_of

if TYPE_CHECKING:
    from px.oci.documents import Descriptor
    from px.oci.objects import PackedObject
    from px.project.context import Context
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.store.objects import Store

OBJECT = "application/vnd.px.cached.v1"
SIGNATURE = "dev.px.signature"
SIGNING_KEY, KEYS = "PX_CACHE_SIGNING_KEY", "PX_CACHE_KEYS"
CONNECT, READ = 3.0, 10.0
"""How many seconds a cache has to accept a connection, and to send the next bytes."""


@dataclass
class Cache:
    """A repository that is asked for objects."""

    reference: Reference
    registry: Registry
    tag: str = ""
    """Where it has everything that is going to be asked for; empty if that is not known, or was fetched."""
    gone: bool = False
    """It failed: it is not asked again in this process."""
    asked: set[str] = field(default_factory=set)
    """The tags of that kind that it was asked for."""
    _absent: set[tuple[str, str]] = field(default_factory=set)
    _asking: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def at(cls, reference: Reference) -> Cache:
        http = Http(connections=8, retries=urllib3.Retry(0), connect=CONNECT, read=READ)
        return cls(reference, Registry(reference, http=http, patience=0.0))

    def take(self, store: Store, kind: str, key: str) -> str | None:
        """The object from the cache; None if it does not have it, or what it has is not that."""
        if kind not in KINDS or (kind, key) in self._absent:
            return None
        with self._asking:
            if self.gone:
                return None
            try:
                return self._take(store, ObjectName(kind, key))
            except (FetchError, RegistryError, DamagedError) as e:
                self.gone = True
                reason = console.redact(str(e) if isinstance(e, DamagedError) else e.reason)
                console.warn(f"The shared cache {self.reference.repository} is not used, px builds: {reason}")
                return None

    def _take(self, store: Store, name: ObjectName) -> str | None:
        source = RegistrySource(self.registry)
        tag, self.tag = self.tag, ""
        self.asked.add(tag)
        if tag and (found := self._manifest(tag)):
            doing = console.waiting(f"Fetching {console.counted(len(found), 'object')} from the cache", at_once=True)
            take_all(store, source, found, _check_signature, doing=doing)
        oid = store.lookup(name.kind, name.key, ask=False)
        if oid is None and (found := self._manifest(tag_of(name))) and name in found:
            oid = take(store, source, name, found[name], _check_signature)
        if oid is None:
            self._absent.add((name.kind, name.key))
        return oid

    def _manifest(self, tag: str) -> dict[ObjectName, Descriptor] | None:
        self.registry.connect()
        found = self.registry.manifest(tag)
        if found is None:
            return None
        try:
            return documents_in(bounds.parse_json(found[0]), OBJECT)
        except NOT_VALID as e:
            raise DamagedError(f"{tag}: {e!r}") from e


def cache_of(context: Context) -> Reference | None:
    """The repository that the project or the environment names, if one does."""
    text = context.cache
    if not text:
        return None
    try:
        reference = parse(text)
    except PxError as e:
        raise PxError("PX953", problem=e.what) from e
    if reference.is_local or ":" in text.rpartition("/")[2] or reference.digest:
        raise PxError("PX953", problem=f"{text!r} is not the name of a repository, without a tag")
    return reference


def ask_cache(context: Context) -> None:
    """Have the store ask the cache for what it lacks."""
    reference = cache_of(context)
    if reference is not None and context.store.remote is None:
        context.store.remote = Cache.at(reference)


def expect(situation: Situation, selection: Selection, architecture: str) -> None:
    """Say what will be built next: the first object of it that is missing brings all that the cache has."""
    cache = situation.context.store.remote
    if isinstance(cache, Cache) and (tag := set_tag(situation, selection, architecture)) not in cache.asked:
        cache.tag = tag


def set_tag(situation: Situation, selection: Selection, architecture: str) -> str:
    """The tag for everything that a project needs: it says what that depends on, so far as one can know beforehand."""
    manifest, _ = governing_manifest(situation.project.manifest.path)
    lock = encode(load_base_lock(manifest.base, architecture, manifest.pins))
    chosen = json.dumps(selection.as_json(), sort_keys=True)
    pinned = hashlib.sha256(lock).hexdigest()
    return "set-" + oid_of("cache-set", [situation.inputs, chosen, architecture, pinned, SBX_VERSION, __version__])


# --- signatures ------------------------------------------------------------------------------------------------


def sign(packed: PackedObject) -> PackedObject:
    """The object with a signature of its name and its oid, if ``PX_CACHE_SIGNING_KEY`` names a file with a key."""
    path = os.environ.get(SIGNING_KEY)
    if not path:
        return packed
    import pysequoia

    try:
        signer = pysequoia.Tsk.from_file(path).signer()
        signed = pysequoia.sign(signer, _statement(packed.name, packed.oid), mode=pysequoia.SignatureMode.CLEAR)
    except (RuntimeError, OSError, ValueError) as e:
        raise PxError("PX953", problem=f"{SIGNING_KEY}={path}: {str(e).splitlines()[0]}") from e
    annotations = {**packed.document.annotations, SIGNATURE: bytes(signed).decode()}
    return replace(packed, document=replace(packed.document, annotations=annotations))


def _check_signature(name: ObjectName, at: Descriptor, oid: str) -> None:
    """With ``PX_CACHE_KEYS``, a file of public keys, only what one of them has signed is taken."""
    keys = os.environ.get(KEYS)
    if not keys:
        return
    try:
        said = verify(at.annotations.get(SIGNATURE, "").encode(), Path(keys))
    except (UntrustedError, RuntimeError, OSError) as e:
        raise DamagedError(f"{name} is not signed by a key in {keys}: {e}") from e
    if said.split() != _statement(name, oid).split():
        raise DamagedError(f"{name}: the signature is that of another object")


def _statement(name: ObjectName, oid: str) -> bytes:
    return f"{name} {oid}\n".encode()


def tag_of(name: ObjectName) -> str:
    return f"{name.kind}-{name.key}"
