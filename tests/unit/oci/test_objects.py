"""Objects as blobs and back: what arrives is the same object, or nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import zstandard

from px.home import Home
from px.oci.blobs import Blobs
from px.oci.documents import Descriptor, digest_of, encode
from px.oci.objects import CONTENT, DOCUMENT, DamagedError, ObjectName, PackedObject, documents_in, pack_object, take
from px.store.objects import Draft, Payload, Store

NAME = ObjectName("layer", "a" * 64)


class Memory:
    """A source whose blobs a test can replace."""

    name = "memory"

    def __init__(self, blobs: Blobs, packed: PackedObject):
        self.content = {at.digest: blobs.path(at.digest).read_bytes() for at in packed.blobs}

    def tops(self) -> list[Descriptor]:
        return []

    def open(self, at: Descriptor) -> BinaryIO:
        return io.BytesIO(self.content[at.digest])


def make(draft: Draft) -> Payload:
    tree = draft.tree()
    tree.directory("bin", 0o755)
    tree.file("bin/empty", b"")
    tree.file("bin/tool", b"#!/bin/sh\n" * 1000, 0o755)
    tree.hardlink("a-link", "bin/tool")
    tree.symlink("etc", "/bin")
    tree.file("ünï", b"x" * 3_000_000)
    draft.refs.append("source/" + "0" * 64)
    draft.refs.append("layer/" + "1" * 64)
    return {"what": "test", "tree": tree.finish()}


@pytest.fixture
def packed(store: Store) -> tuple[PackedObject, Memory]:
    oid = store.ensure(NAME.kind, NAME.key, make)
    blobs = Blobs(store.home)
    found = pack_object(store, blobs, NAME, oid)
    assert pack_object(store, blobs, NAME, oid) == found
    return found, Memory(blobs, found)


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(Home(tmp_path / "other"))


def test_an_object_arrives_whole(packed: tuple[PackedObject, Memory], other: Store, store: Store) -> None:
    one, source = packed
    assert take(other, source, NAME, one.document) == one.oid
    assert other.lookup(NAME.kind, NAME.key) == one.oid
    assert other.problems(NAME.kind, one.oid) == []
    assert other.meta(NAME.kind, one.oid)["refs"] == ["layer/" + "1" * 64]
    again = pack_object(other, Blobs(other.home), NAME, one.oid)
    assert again == one, "a second machine makes the same blobs"


def changed(one: PackedObject, source: Memory, change: Callable[[Any], object]) -> Descriptor:
    """Another document in the place of the object's, with a digest of its own."""
    document = json.loads(zstandard.ZstdDecompressor().decompressobj().decompress(source.content[one.document.digest]))
    change(document)
    content = zstandard.ZstdCompressor().compress(encode(document))
    source.content[digest_of(content)] = content
    return Descriptor(DOCUMENT, digest_of(content), len(content))


LIES: dict[str, Callable[[Any], object]] = {
    "another key": lambda d: d.update(key="b" * 64),
    "another kind": lambda d: d.update(kind="pkg-build"),
    "another oid": lambda d: d.update(oid="c" * 64),
    "another payload": lambda d: d["payload"].update(what="evil"),
    "no payload": lambda d: d.pop("payload"),
    "a path outside": lambda d: d["payload"]["tree"].append(["f", "../../evil", 0o644, 0, "0" * 64]),
    "no content": lambda d: d.update(content=None),
    "nothing": lambda d: d.clear(),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_document_that_lies(lie: str, packed: tuple[PackedObject, Memory], other: Store) -> None:
    one, source = packed
    with pytest.raises(DamagedError):
        take(other, source, NAME, changed(one, source, LIES[lie]))
    assert_untouched(other)


def test_a_payload_that_leaves_the_tree_is_refused_even_if_its_hash_is_right(
    packed: tuple[PackedObject, Memory], other: Store
) -> None:
    from px.store.canonical import oid_of

    def escape(document: Any) -> None:
        document["payload"]["tree"] = [["f", "../evil", 0o644, 0, digest_of(b"").removeprefix("sha256:")]]
        document["oid"] = oid_of("layer", document["payload"])

    one, source = packed
    with pytest.raises(DamagedError, match="leaves the tree"):
        take(other, source, NAME, changed(one, source, escape))
    assert_untouched(other)


def flip(content: bytes) -> bytes:
    return content[:20] + bytes([content[20] ^ 1]) + content[21:]


def other_content(_: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(b"y" * 3_010_000)


@pytest.mark.parametrize(
    "damage", [flip, other_content, lambda c: c[: len(c) // 2], lambda c: c + c, lambda _: b"", lambda _: b"no zstd"]
)
def test_content_that_is_not_its_own(
    damage: Callable[[bytes], bytes], packed: tuple[PackedObject, Memory], other: Store
) -> None:
    one, source = packed
    assert one.content is not None
    source.content[one.content.digest] = damage(source.content[one.content.digest])
    with pytest.raises(DamagedError):
        take(other, source, NAME, one.document)
    assert_untouched(other)


def test_a_document_that_was_changed_or_is_a_bomb(packed: tuple[PackedObject, Memory], other: Store) -> None:
    one, source = packed
    bomb = zstandard.ZstdCompressor().compress(bytes(130 << 20))
    source.content[digest_of(bomb)] = bomb
    for at in (Descriptor(DOCUMENT, digest_of(bomb), len(bomb)), replace(one.document, size=1 << 40)):
        with pytest.raises(DamagedError):
            take(other, source, NAME, at)
    source.content[one.document.digest] = flip(source.content[one.document.digest])
    with pytest.raises(DamagedError, match="another digest"):
        take(other, source, NAME, one.document)
    assert_untouched(other)


def assert_untouched(store: Store) -> None:
    assert list(store.objects()) == []
    assert list(store.home.tmp.iterdir() if store.home.tmp.is_dir() else []) == []
    assert not (store.home.root / "evil").exists()


@pytest.mark.parametrize("name", ["", "layer", "layer/x", "source/" + "a" * 64, "layer/../../x", "/" + "a" * 64])
def test_names_of_objects(name: str) -> None:
    row = {"mediaType": DOCUMENT, "digest": digest_of(b""), "size": 0, "annotations": {"dev.px.object": name}}
    with pytest.raises(DamagedError):
        documents_in({"artifactType": "t", "layers": [row]}, "t")
    assert documents_in({"artifactType": "t", "layers": [row | {"mediaType": CONTENT}]}, "t") == {}
    with pytest.raises(DamagedError, match="an image"):
        documents_in({"layers": []}, "t")
