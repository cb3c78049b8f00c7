"""The blobs of images, by digest, under ``PX_HOME/sandbox/blobs``.

A layer is packed only once.  ``index/<key>`` says which blob was made from which input.  The key is the hash of the
input (oids of trees, prefixes, owners), of the compression and of the tar format.  The index is a cache: if it is lost,
the layers are packed again, with the same digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError
from px.oci import tar
from px.oci.compress import GZIP, ZSTD, Method, compress, method_of
from px.oci.documents import check_digest, digest_of
from px.oci.failures import building
from px.oci.tar import ROOT, Part, write_tar
from px.store.canonical import Value, oid_of
from px.store.files import write_atomically
from px.store.objects import Store, tree_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from px.home import Home

    Write = Callable[[bytes], object]


@dataclass(frozen=True)
class LayerBlob:
    """A packed layer.  The config needs ``diff_id``, the sha256 of the tar; the manifest ``digest`` and ``size``."""

    diff_id: str
    digest: str
    size: int
    raw_size: int
    compression: str


@dataclass(frozen=True)
class TreeRef:
    """A tree of the store, and its place and owner in the image."""

    kind: str
    oid: str
    prefix: str = ""
    owner: tuple[int, int] = ROOT
    owned: tuple[tuple[str, tuple[int, int]], ...] = ()

    def identity(self) -> Value:
        return [self.oid, self.prefix, list(self.owner), [[path, list(owner)] for path, owner in self.owned]]


class Blobs:
    """The blobs of one px home.  Any number of processes may use it at once."""

    def __init__(self, home: Home):
        self.home = home
        self.root = home.sandbox / "blobs"

    def path(self, digest: str) -> Path:
        return self.root / "sha256" / check_digest(digest).removeprefix("sha256:")

    def has(self, digest: str) -> bool:
        return self.path(digest).exists()

    def add(self, content: bytes) -> str:
        """Store a small document and return its digest."""
        digest = digest_of(content)
        if not self.has(digest):
            with building(self.home, self.root):
                write_atomically(self.path(digest), content, mode=0o444)
        return digest

    def read(self, digest: str) -> bytes:
        """Read a small blob and check it against its digest."""
        try:
            content = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise PxError("PX801", kind="blob", oid=digest) from None
        if digest_of(content) != digest:
            raise PxError("PX802", kind="blob", oid=digest, problem="its content has another digest")
        return content

    def store_layer(self, store: Store, trees: Sequence[TreeRef], *, compression: str = GZIP) -> LayerBlob:
        """The layer that consists of these trees of the store."""

        # A function, because reading the specs of large trees takes time, and a layer that is packed needs none.
        def parts() -> list[Part]:
            return [_part(store, tree) for tree in trees]

        return self.layer([tree.identity() for tree in trees], parts, compression=compression)

    def layer(
        self, identity: Value, parts: Callable[[], Sequence[Part]], *, compression: str = GZIP, mtime: int = tar.EPOCH
    ) -> LayerBlob:
        """The layer for ``identity``.  If there is none yet, it is packed from ``parts``."""
        method = method_of(compression)
        key = oid_of("layer-blob", [identity, method.identity, tar.FORMAT, mtime])
        found = self._find(key)
        if found is not None:
            console.detail(f"layer {found.digest[7:19]}: already packed")
            return found
        store = Store(self.home)
        with building(self.home, self.root), store.lock(f"blob-{key}", f"layer {key[:12]}"):
            # Another process may have packed it while this one waited for the lock.
            found = self._find(key)
            if found is not None:
                return found
            return self._make(store, key, lambda write: write_tar(parts(), write, mtime=mtime), method)

    def packed(self, identity: Value, produce: Callable[[Write], object]) -> LayerBlob:
        """The blob for ``identity``, which is not a layer: what ``produce`` writes, compressed with zstd."""
        method = method_of(ZSTD)
        key = oid_of("blob", [identity, method.identity])
        store = Store(self.home)
        with building(self.home, self.root), store.lock(f"blob-{key}", f"blob {key[:12]}"):
            return self._find(key) or self._make(store, key, produce, method)

    def _find(self, key: str) -> LayerBlob | None:
        try:
            found = LayerBlob(**json.loads((self.root / "index" / key).read_bytes()))
            # A blob of another size is damaged: it is packed again.  Reading it to check its digest would be slow.
            path = self.path(found.digest)
            if path.stat().st_size == found.size:
                _touch(path)
                return found
        except (OSError, ValueError, TypeError):
            pass
        return None

    def _make(self, store: Store, key: str, produce: Callable[[Write], object], method: Method) -> LayerBlob:
        started = time.monotonic()
        with store.draft() as draft, console.waiting("Packing a layer"):
            with draft.data.open("xb") as out:
                done = compress(method, produce, out)
                out.flush()
                os.fchmod(out.fileno(), 0o444)
                # Before the rename: after a power failure the blob must not be there without its content.
                os.fsync(out.fileno())
            made = LayerBlob("sha256:" + done.diff_id, "sha256:" + done.digest, done.size, done.raw_size, method.name)
            final = self.path(made.digest)
            final.parent.mkdir(parents=True, exist_ok=True)
            # The draft is on the same file system as the blobs, so the blob appears whole.
            draft.data.replace(final)
        write_atomically(self.root / "index" / key, json.dumps(asdict(made)).encode(), durable=False)
        console.detail(
            f"layer {made.digest[7:19]}: {console.size(made.raw_size)} packed to {console.size(made.size)} "
            f"in {time.monotonic() - started:.2f} s"
        )
        return made

    def digests(self) -> Iterator[str]:
        folder = self.root / "sha256"
        for name in sorted(p.name for p in folder.iterdir()) if folder.is_dir() else ():
            if len(name) == 64:  # not the temporary file of a write in progress
                yield "sha256:" + name

    def problems(self, digest: str) -> list[str]:
        """Read a whole blob and return what is wrong with it."""
        with self.path(digest).open("rb") as f:
            actual = hashlib.file_digest(f, "sha256").hexdigest()
        return [] if digest == "sha256:" + actual else [f"its sha256 is {actual}"]


def _touch(path: Path) -> None:
    """Set the time of last use, for garbage collection.  A home that is read-only works too."""
    with suppress(OSError):
        os.utime(path)


def _part(store: Store, tree: TreeRef) -> Part:
    entries = tree_spec(store.payload(tree.kind, tree.oid))
    return Part(store.tree(tree.kind, tree.oid), entries, tree.prefix, tree.owner, tree.owned)
