"""Objects of the store as blobs, for bundles and for the shared cache, and back again.

Each object has a document (kind, key, oid, payload) and, if it has a tree, the contents of its files, one after the
other in the order of the payload's spec.  There is no archive format to parse: the payload, whose hash is the oid, says
what every byte must be.  So whoever sends an object cannot make it another one.
"""

from __future__ import annotations

import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Self, TypeAlias, cast

from px import bounds
from px.errors import PxError
from px.http import FetchError
from px.oci.compress import METHODS, ZSTD, compress
from px.oci.documents import EMPTY_TYPE, FORMATS, NOT_VALID, OCI, Descriptor, Json, digest_of, encode
from px.oci.registry.client import RegistryError
from px.process import beside
from px.store.canonical import oid_of
from px.store.objects import tree_spec
from px.store.tree import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from px.console import Work
    from px.oci.blobs import Blobs
    from px.oci.sources import Source
    from px.store.objects import Draft, Payload, Store

DOCUMENT = "application/vnd.px.object.v1+json+zstd"
CONTENT = "application/vnd.px.object.content.v1+zstd"
NAME = "dev.px.object"
"""The annotation of a document: ``kind/key``."""
AT_ONCE = 4
KINDS = ("sandbox-base", "layer", "pkg-build")
"""What travels.  Sources come from where their locks say, and the rest is made of these in no time."""
_EMPTY = b"{}"
EMPTY_DIGEST = digest_of(_EMPTY)
"""The config of every manifest here: OCI's document for what is not an image."""
_CHUNK = 1 << 20
# A base has a document of less than a megabyte.
_LARGEST, _LARGEST_UNPACKED = 16 << 20, 128 << 20
_KEY = re.compile(r"[0-9a-f]{64}")
_REF = re.compile(r"[a-z-]+/[0-9a-f]{64}")


class DamagedError(Exception):
    """What was sent is not the object that it should be.  The text says why."""


@dataclass(frozen=True, order=True)
class ObjectName:
    """What an object was made from: the key that px looks for."""

    kind: str
    key: str

    @classmethod
    def parse(cls, text: str) -> ObjectName:
        kind, _, key = text.partition("/")
        if kind not in KINDS or not _KEY.fullmatch(key):
            raise DamagedError(f"{text!r} is not the name of an object")
        return cls(kind, key)

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"


Check: TypeAlias = "Callable[[ObjectName, Descriptor, str], None]"
"""Raises DamagedError if the object of this name may not be that with this oid."""


@dataclass(frozen=True)
class PackedObject:
    """An object as blobs."""

    name: ObjectName
    oid: str
    document: Descriptor
    content: Descriptor | None

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        return (self.document, self.content) if self.content else (self.document,)


# --- from the store --------------------------------------------------------------------------------------------


def pack_object(store: Store, blobs: Blobs, name: ObjectName, oid: str) -> PackedObject:
    """Make the blobs of an object; the same object always gives the same."""
    payload = store.payload(name.kind, oid)
    content = None
    if any(entry[0] == "f" for entry in tree_spec(payload)):
        made = blobs.packed(["object-content", name.kind, oid], lambda write: _write(store, name.kind, oid, write))
        content = Descriptor(CONTENT, made.digest, made.size)
    meta = store.meta(name.kind, oid)
    refs = sorted(str(r) for r in cast("list[str]", meta.get("refs", [])) if not str(r).startswith("source/"))
    document: Json = {"kind": name.kind, "key": name.key, "oid": oid, "refs": refs, "payload": payload}
    document["content"] = content.document() if content else None
    document["filename"] = meta.get("filename", "")
    packed = io.BytesIO()
    compress(METHODS[ZSTD], lambda write: write(encode(document)), packed)
    digest = blobs.add(packed.getvalue())
    at = Descriptor(DOCUMENT, digest, len(packed.getvalue()), {NAME: str(name)})
    return PackedObject(name, oid, at, content)


def _write(store: Store, kind: str, oid: str, write: Callable[[bytes], object]) -> None:
    root = store.tree(kind, oid)
    for entry in tree_spec(store.payload(kind, oid)):
        if entry[0] == "f":
            with open(native(root, str(entry[1])), "rb", buffering=0) as f:
                while chunk := f.read(_CHUNK):
                    write(chunk)


def manifest_of(
    blobs: Blobs, kind: str, objects: Sequence[PackedObject], more: Sequence[Descriptor] = ()
) -> Descriptor:
    """A manifest over objects: OCI's way to keep what is not an image.  Returns where it is among the blobs."""
    layers = {at.digest: at for packed in objects for at in packed.blobs} | {at.digest: at for at in more}
    empty = Descriptor(EMPTY_TYPE, blobs.add(_EMPTY), len(_EMPTY))
    content = encode(
        {
            "schemaVersion": 2,
            "mediaType": FORMATS[OCI].manifest,
            "artifactType": kind,
            "config": empty.document(),
            "layers": [at.document() for at in layers.values()],
        }
    )
    return Descriptor(FORMATS[OCI].manifest, blobs.add(content), len(content), artifact_type=kind)


# --- into a store ----------------------------------------------------------------------------------------------


def documents_in(manifest: Json, kind: str) -> dict[ObjectName, Descriptor]:
    """The objects that a manifest lists, by name."""
    if manifest.get("artifactType") != kind:
        raise DamagedError(f"it is {manifest.get('artifactType') or 'an image'}, not {kind}")
    found = [Descriptor.read(row) for row in manifest["layers"]]
    return {ObjectName.parse(at.annotations.get(NAME, "")): at for at in found if at.media_type == DOCUMENT}


def take_all(
    store: Store,
    source: Source,
    wanted: dict[ObjectName, Descriptor],
    check: Check | None = None,
    *,
    doing: Work,
) -> dict[ObjectName, str]:
    """Take objects that the store lacks, several at a time.  The first that is not what it should be is an error."""
    lacking = [name for name in wanted if store.lookup(name.kind, name.key, ask=False) is None]
    # The largest first, so that no large one is left alone at the end.
    names = sorted(lacking, key=lambda name: -wanted[name].size)

    def take_one(name: ObjectName) -> str:
        return take(store, source, name, wanted[name], check)

    with beside(lambda: [take_one(name) for name in names[:1]]) as apart, doing, ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {name: pool.submit(take_one, name) for name in (names[1:] if apart else names)}
        try:
            taken = {name: future.result() for name, future in futures.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: taken.get(name) or store.lookup(name.kind, name.key, ask=False) or take_one(name) for name in names}


def take(store: Store, source: Source, name: ObjectName, at: Descriptor, check: Check | None = None) -> str:
    """Bring one object into the store, if it is what its name and its oid say, and ``check`` does not object."""
    try:
        document = _document(source, at)
        kind, key, payload = document["kind"], document["key"], document["payload"]
        if (kind, key) != (name.kind, name.key):
            raise DamagedError(f"{name} is {kind}/{key}")
        if oid_of(kind, payload) != document["oid"]:
            raise DamagedError(f"{name}: its payload is not that of {document['oid']}")
        if check is not None:
            check(name, at, document["oid"])
        content = Descriptor.read(document["content"]) if document["content"] else None
        refs = [ref for ref in document["refs"] if _REF.fullmatch(ref)]

        def fill(draft: Draft) -> None:
            draft.refs.extend(refs)
            if document.get("filename"):
                draft.notes["filename"] = str(document["filename"])
            _fill(draft, payload, source, content)

        return store.accept(kind, key, payload, fill)
    except (FetchError, RegistryError, PxError) as e:
        raise DamagedError(f"{name}: {e.reason if not isinstance(e, PxError) else e.what}") from e
    except (*NOT_VALID, RecursionError, EOFError) as e:
        raise DamagedError(f"{name}: {e}") from e


def _document(source: Source, at: Descriptor) -> Json:
    if at.size > _LARGEST:
        raise DamagedError(f"a document of {at.size} bytes")
    with source.open(at) as f:
        packed = f.read(at.size + 1)
    if digest_of(packed) != at.digest:
        raise DamagedError(f"the content of {at.digest} has another digest")
    with _unpacked(io.BytesIO(packed)) as f:
        text = f.read(_LARGEST_UNPACKED + 1)
    if len(text) > _LARGEST_UNPACKED:
        raise DamagedError("its document is too large")
    return cast("Json", json.loads(text))


def _fill(draft: Draft, payload: Payload, source: Source, content: Descriptor | None) -> None:
    """Write the tree as the payload describes it, and compare: every file has its hash there."""
    if "tree" not in payload and "fs_tree" not in payload:
        return
    spec, writer = tree_spec(payload), draft.tree()
    sizes = [int(entry[3]) for entry in spec if entry[0] == "f"]
    if len(spec) > bounds.MEMBERS or min(sizes, default=0) < 0 or sum(sizes) > bounds.UNPACKED:
        raise DamagedError("it has too many files, or files of an impossible size")
    with source.open(content) if content else io.BytesIO() as packed, _unpacked(packed) as f:
        for entry in sorted(spec, key=lambda e: e[0] == "h"):  # a hard link comes after the file that it is a link to
            kind, path = entry[0], str(entry[1])
            if kind == "d":
                writer.directory(path, int(entry[2]))
            elif kind == "f":
                writer.file(path, _exactly(f, int(entry[3])), int(entry[2]))
            elif kind == "l":
                writer.symlink(path, str(entry[2]))
            else:
                writer.hardlink(path, str(entry[2]))
        if content and f.read(1):
            raise DamagedError("there is more content than its payload describes")
    if writer.finish() != spec:
        raise DamagedError("its content is not what its payload describes")


def _unpacked(packed: BinaryIO) -> BinaryIO:
    import zstandard

    return cast("BinaryIO", _Reader(zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)))


class _Reader:
    """zstandard's stream, with its own errors as ours."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream

    def read(self, size: int) -> bytes:
        import zstandard

        try:
            return self._stream.read(size)
        except zstandard.ZstdError as e:
            raise DamagedError(f"it is not compressed as it should be: {e}") from e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def _exactly(stream: BinaryIO, size: int) -> Iterable[bytes]:
    def pieces() -> Iterator[bytes]:
        left = size
        while left:
            piece = stream.read(min(left, _CHUNK))
            if not piece:
                raise DamagedError("its content ends too early")
            left -= len(piece)
            yield piece

    return pieces()
