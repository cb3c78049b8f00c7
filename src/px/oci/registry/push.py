"""Pushes a release to registries.  Blobs that a registry lacks are sent in parallel; the names come last."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError
from px.http import FetchError
from px.oci.documents import INDEX_TYPES, MANIFEST_TYPES, digest_of
from px.oci.registry.client import Registry, RegistryError
from px.oci.registry.upload import MOUNTED, Sending
from px.store.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from px.home import Home
    from px.oci.blobs import Blobs
    from px.oci.layout import Release
    from px.oci.registry.reference import Reference

AT_ONCE = 4  # uploads at the same time


@dataclass(frozen=True)
class Pushed:
    """What a push did, by digest."""

    names: tuple[Reference, ...]
    digest: str
    present: tuple[str, ...]
    mounted: tuple[str, ...]
    sent: tuple[str, ...]
    sent_bytes: int


def push(
    blobs: Blobs,
    what: Release,
    names: Sequence[Reference],
    *,
    insecure: bool = False,
    connect: Callable[[Reference], Registry] | None = None,
) -> tuple[Pushed, ...]:
    """Push under every name.  Returns one result for each repository."""
    by_repository: dict[str, list[Reference]] = defaultdict(list)
    for name in names:
        if name.is_local:
            raise PxError(
                "PX922", reference=str(name), problem="px.local is px's name for images on this machine, not a registry"
            )
        # Several tags of one repository share its blobs: they are pushed once.
        by_repository[name.repository].append(name)
    make = connect or (lambda name: Registry(name, insecure=insecure))
    return tuple(_push_repository(blobs, what, group, make(group[0])) for group in by_repository.values())


@contextmanager
def reported(registry: Registry, doing: str, *, packed: bool = True) -> Iterator[None]:
    """Turn failures of the registry or of the network into PX903.  ``packed``: there is an image, which is not lost."""
    try:
        yield
    except (FetchError, RegistryError) as e:
        raise registry.failure(doing, e, packed=packed) from e


def _push_repository(blobs: Blobs, what: Release, names: list[Reference], registry: Registry) -> Pushed:
    with reported(registry, f"pushing {names[0]}"):
        registry.connect()
        documents = _documents(blobs, what)
        wanted = [digest for digest in what.blob_digests() if digest not in documents]
        done = push_blobs(blobs, registry, wanted, names[0])
        # The order is that of references: blobs, the manifests of single platforms by digest, then the top document
        # under its names.  So a name never means an incomplete image.
        for digest in documents:
            content, media_type = documents[digest]
            if digest != what.digest:
                registry.put_manifest(digest, content, media_type)
        content, media_type = documents[what.digest]
        for name in names:
            registry.put_manifest(name.tag or what.digest, content, media_type)
    return Pushed(tuple(names), what.digest, *done)


def has_release(blobs: Blobs, what: Release, registry: Registry, tag: str) -> bool:
    """Whether a repository has all of it under this tag.

    Registries remove what lost its last tag, and a clean-up during a push can take a layer of an image that is then
    listed without it.
    """
    named = registry.manifest(tag)
    if named is None or digest_of(named[0]) != what.digest:
        return False
    documents = _documents(blobs, what)
    if any(registry.manifest(digest) is None for digest in documents if digest != what.digest):
        return False
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return all(pool.map(registry.has_blob, [d for d in what.blob_digests() if d not in documents]))


def _documents(blobs: Blobs, what: Release) -> dict[str, tuple[bytes, str]]:
    """Content and media type of the manifests and the index, by digest.  A registry takes them apart from blobs."""
    found = [*(image.manifest for image in what.images), what.top]
    return {
        d.digest: (blobs.read(d.digest), d.media_type) for d in found if d.media_type in MANIFEST_TYPES + INDEX_TYPES
    }


def push_blobs(
    blobs: Blobs, registry: Registry, wanted: Sequence[str], name: Reference
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], int]:
    """Send the blobs that a repository lacks; returns those it had, those mounted, those sent, and their size."""
    known = Known(blobs.home, registry.host)
    # First ask for all blobs, in parallel: the bar needs the number of bytes to send.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        there = dict(zip(wanted, pool.map(registry.has_blob, wanted), strict=True))
        missing = [digest for digest in wanted if not there[digest]]
        sizes = {digest: blobs.path(digest).stat().st_size for digest in missing}
        bar = console.progress(f"Pushing {name.repository}", sum(sizes.values()))
        # The largest first, so that no large one is left alone at the end.
        paths = {digest: blobs.path(digest) for digest in sorted(missing, key=lambda d: -sizes[d])}
        how = _send_all(pool, registry, paths, known, bar) if missing else {}
    # Now the repository has all of them, whether they were there before or not.
    known.remember(wanted, registry.path)
    sent = tuple(digest for digest in missing if how[digest] != MOUNTED)
    return (
        tuple(digest for digest in wanted if there[digest]),
        tuple(digest for digest in missing if how[digest] == MOUNTED),
        sent,
        sum(sizes[digest] for digest in sent),
    )


def _send_all(
    pool: ThreadPoolExecutor, registry: Registry, paths: dict[str, Path], known: Known, bar: console.Progress
) -> dict[str, str]:
    interrupted = threading.Event()
    with bar:

        def count(amount: int) -> None:
            if interrupted.is_set():
                raise InterruptedPushError
            bar.advance(amount)

        def send(digest: str) -> str:
            source = known.repository(digest, besides=registry.path)
            return Sending(registry, digest, paths[digest], count).run(mount_from=source)

        futures = {digest: pool.submit(send, digest) for digest in paths}
        try:
            return {digest: future.result() for digest, future in futures.items()}
        except BaseException as e:
            # After a failure, uploads that have begun may finish: the next try finds their blobs.  After Ctrl-C, which
            # is not an Exception, they stop.
            if not isinstance(e, Exception):
                interrupted.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class InterruptedPushError(Exception):
    """The user pressed Ctrl-C.  Uploads in other threads raise this at their next piece."""


class Known:
    """Remembers to which repository of a registry px has sent a blob.

    Other repositories of the registry can mount the blob from there, without an upload.  This is a cache: if it is
    wrong, the registry refuses the mount and px sends the blob.
    """

    def __init__(self, home: Home, host: str):
        self._path: Path = home.cache("registries") / hashlib.sha256(host.encode()).hexdigest()
        try:
            self._found: dict[str, str] = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            self._found = {}

    def repository(self, digest: str, *, besides: str) -> str | None:
        found = self._found.get(digest)
        return found if found != besides else None

    def remember(self, digests: Sequence[str], repository: str) -> None:
        fresh = {digest: repository for digest in digests if digest not in self._found}
        if fresh:
            self._found |= fresh
            try:
                write_atomically(self._path, json.dumps(self._found, sort_keys=True).encode(), durable=False)
            except OSError as e:
                console.debug(f"{self._path} cannot be written: {e}")
