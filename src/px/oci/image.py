"""Reads images, and describes how two of them differ: layer by layer and file by file."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from px import bounds
from px.errors import PxError
from px.http import FetchError
from px.oci.compress import GZIP, ZSTD
from px.oci.documents import (
    DOCKER,
    FORMATS,
    NOT_VALID,
    OCI,
    Descriptor,
    Json,
    Platform,
    check_digest,
    digest_of,
    text,
    texts,
)
from px.oci.registry.client import RegistryError
from px.oci.sources import ArchiveSource, Source, manifests, platform_of, read_document, read_json
from px.tarballs import members, open_tar, unpacked_zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The first bytes of gzip and zstd data.
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_DAMAGED = "Do not run this image: it is damaged, or somebody changed it. Copy or download it again."
_KINDS = {
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.LNKTYPE: "hard link",
    tarfile.FIFOTYPE: "pipe",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
}


@dataclass(frozen=True)
class ReadLayer:
    """A layer as an image describes it.  ``digest`` is empty if the source has the layer only uncompressed."""

    diff_id: str
    digest: str
    size: int
    created_by: str
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class ReadImage:
    """The image of one platform."""

    name: str
    digest: str
    config: Json
    layers: tuple[ReadLayer, ...]
    annotations: dict[str, str]
    format: str = OCI
    compression: str = GZIP

    @property
    def platform(self) -> Platform:
        return platform_of(self.config)

    @property
    def labels(self) -> dict[str, str]:
        return texts((self.config.get("config") or {}).get("Labels"))


@dataclass(frozen=True)
class File:
    """What a layer has at one path."""

    kind: str
    mode: int
    owner: tuple[int, int]
    size: int
    mtime: int
    content: str
    """The sha256 of a file, or the target of a link."""

    def __str__(self) -> str:
        shown = f"{self.kind}, mode {self.mode:04o}, owner {self.owner[0]}:{self.owner[1]}"
        return shown + (f", {self.size} bytes, sha256 {self.content[:12]}" if self.kind == "file" else "")


@dataclass(frozen=True)
class Difference:
    """One difference between two images: where it is, and lines that describe it."""

    where: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.where}:", *(f"  {line}" for line in self.lines)])


class Keep:
    """The content of some files of an image, as far as there is room for it."""

    def __init__(self, wanted: Callable[[str], bool]):
        self._wanted = wanted
        self._room = bounds.INDEX
        self.contents: dict[str, bytes] = {}

    def wants(self, path: str, size: int) -> bool:
        return self._wanted(path) and size <= min(self._room, bounds.DOCUMENT)

    def add(self, path: str, chunk: bytes) -> None:
        self.contents[path] = self.contents.get(path, b"") + chunk
        self._room -= len(chunk)


def read_images(source: Source) -> tuple[ReadImage, ...]:
    """The images of a source, one for each platform."""
    try:
        if isinstance(source, ArchiveSource) and "index.json" not in source.members:
            return _docker_images(source)
        return tuple(_image(source, at) for at in manifests(source))
    except (OSError, *NOT_VALID) as e:
        raise PxError("PX923", source=source.name, problem=f"one of its documents is not valid: {e}") from e


def _image(source: Source, at: Descriptor) -> ReadImage:
    manifest = read_document(source, at)
    config = _checked(read_document(source, Descriptor.read(manifest["config"])))
    described = [Descriptor.read(found) for found in manifest["layers"]]
    diff_ids, history = config["rootfs"]["diff_ids"], _history(config)
    # The config lists the layers uncompressed, the manifest compressed, in the same order.
    if len(diff_ids) != len(described):
        raise PxError("PX923", source=source.name, problem="config and manifest disagree about the layers")
    layers = tuple(
        ReadLayer(diff_id, layer.digest, layer.size, said, _opener(source, layer))
        for diff_id, layer, said in zip(diff_ids, described, history, strict=False)
    )
    # `px pack verify` packs the image again in the same format and with the same compression.
    family = DOCKER if manifest.get("mediaType") == FORMATS[DOCKER].manifest else OCI
    compression = ZSTD if any(layer.media_type.endswith("+zstd") for layer in described) else GZIP
    return ReadImage(source.name, at.digest, config, layers, texts(manifest.get("annotations")), family, compression)


def _opener(source: Source, at: Descriptor) -> Callable[[], BinaryIO]:
    return lambda: source.open(at)


def _docker_images(source: ArchiveSource) -> tuple[ReadImage, ...]:
    """The images in an archive that an older ``docker save`` wrote: layers are uncompressed, and have no digest."""
    found = []
    for entry in read_json(source.member("manifest.json")):
        content = source.member(entry["Config"]).read(bounds.DOCUMENT + 1)
        config = _checked(bounds.parse_json(content))
        layers = tuple(
            ReadLayer(diff_id, "", source.members[name][1], said, lambda name=name: source.member(name))  # type: ignore[misc]
            for diff_id, name, said in zip(
                config["rootfs"]["diff_ids"], entry["Layers"], _history(config), strict=False
            )
        )
        # There is no manifest, so there are no annotations, and the config's digest (docker's image id) has to do.
        found.append(ReadImage(source.name, digest_of(content), config, layers, {}, DOCKER))
    return tuple(found)


def _checked(config: Json) -> Json:
    """The config, if what px reads of it has the right types: who reads it later need not look again."""
    for digest in config["rootfs"]["diff_ids"]:
        check_digest(digest)
    platform_of(config)
    run = config.get("config") or {}
    texts(run.get("Labels"))
    for key, kind in (("Entrypoint", list), ("Cmd", list), ("ExposedPorts", dict)):
        found = run.get(key) or kind()
        if not isinstance(found, kind) or not all(isinstance(item, str) for item in found):
            raise TypeError(f"{key} is {found!r:.100}")
    return config


def _history(config: Json) -> list[str]:
    # Lines with empty_layer (ENV, CMD in a Dockerfile) have no layer.
    said = [text(h.get("created_by", "")) for h in config.get("history") or [] if not h.get("empty_layer")]
    return said + [""] * (len(config["rootfs"]["diff_ids"]) - len(said))


def layer_files(layer: ReadLayer, source: str = "the image", keep: Keep | None = None) -> dict[str, File]:
    """Every path in a layer.  Reads the whole layer and checks it against its digests.

    ``keep`` gets the content of the files that it wants.
    """
    found: dict[str, File] = {}
    try:
        with layer.open() as raw:
            packed = _Hashing(raw)
            plain = _Hashing(_decompressed(packed))
            # "r|" reads the stream once, from start to end: it cannot go back, so everything passes through the hash.
            with open_tar(cast("BinaryIO", plain), "r|") as archive:
                for member in members(archive, forget=True):
                    found[member.name.strip("/")] = _file(archive, member, found, keep)
            # tarfile stops at the end of the archive; bytes behind it count for the digests too.
            plain.drain()
            packed.drain()
    except (OSError, tarfile.TarError, EOFError, zlib.error, ValueError, FetchError, RegistryError) as e:
        raise PxError("PX923", source=source, problem=f"layer {layer.diff_id} cannot be read: {e}") from e
    for name, expected, actual in (("digest", layer.digest, packed), ("diff_id", layer.diff_id, plain)):
        if expected and actual.digest() != expected:
            problem = f"a layer's {name} is {actual.digest()}, not {expected}"
            raise PxError("PX923", source=source, problem=problem, fix=[_DAMAGED])
    return found


def check_layers(image: ReadImage) -> None:
    """Compare every layer with its digest.  PX923 names the first that is damaged or missing."""
    # Hashing alone is much faster than reading every file, and finds the same damage.
    for layer in image.layers:
        if not layer.digest:  # of an older `docker save`: only the uncompressed digest is known
            layer_files(layer, image.name)
            continue
        digest = hashlib.sha256()
        try:
            with layer.open() as raw:
                while chunk := raw.read(1 << 20):
                    digest.update(chunk)
        except (OSError, FetchError, RegistryError) as e:
            raise PxError("PX923", source=image.name, problem=f"layer {layer.digest} cannot be read: {e}") from e
        if f"sha256:{digest.hexdigest()}" != layer.digest:
            problem = f"a layer is damaged: its digest is sha256:{digest.hexdigest()}, not {layer.digest}"
            raise PxError("PX923", source=image.name, problem=problem, fix=[_DAMAGED])


def _file(archive: tarfile.TarFile, member: tarfile.TarInfo, before: dict[str, File], keep: Keep | None = None) -> File:
    kind, content, size = _KINDS.get(member.type, "file"), member.linkname, 0
    if kind == "hard link":
        # With the content of its target: two layers may have the same links to different files.
        target = before.get(member.linkname.strip("/"))
        content = f"{member.linkname} ({target.content if target else 'not in this layer'})"
    elif kind == "file":
        digest, stream = hashlib.sha256(), archive.extractfile(member)
        wanted = keep is not None and keep.wants(member.name.strip("/"), member.size)
        while stream is not None and (chunk := stream.read(1 << 20)):
            digest.update(chunk)
            if keep is not None and wanted:
                keep.add(member.name.strip("/"), chunk)
        content, size = digest.hexdigest(), member.size
    return File(kind, member.mode, (member.uid, member.gid), size, int(member.mtime), content)


def _decompressed(stream: _Hashing) -> BinaryIO:
    # By the first bytes and not by the media type, which says nothing in a Docker archive.
    magic = stream.peek(4)
    if magic.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=cast("BinaryIO", stream)))
    if magic.startswith(_ZSTD):
        return unpacked_zstd(cast("BinaryIO", stream))
    return cast("BinaryIO", stream)


class _Hashing:
    """A stream that hashes what is read from it."""

    def __init__(self, stream: BinaryIO):
        self._stream, self._hash, self._ahead, self._size = stream, hashlib.sha256(), b"", 0

    def read(self, size: int = -1) -> bytes:
        if self._ahead:
            cut = size if size >= 0 else len(self._ahead)
            found, self._ahead = self._ahead[:cut], self._ahead[cut:]
            return found
        found = self._stream.read(size)
        self._size += len(found)
        if self._size > bounds.UNPACKED:
            raise ValueError("it is too large")
        self._hash.update(found)
        return found

    def peek(self, size: int) -> bytes:
        self._ahead = self.read(size)
        return self._ahead

    def drain(self) -> None:
        while self.read(1 << 20):
            pass

    def digest(self) -> str:
        return "sha256:" + self._hash.hexdigest()


def compare(first: ReadImage, second: ReadImage) -> list[Difference]:
    """How ``second`` differs from ``first``.  Empty if they are the same, bit for bit."""
    found: list[Difference] = []
    count = max(len(first.layers), len(second.layers))
    for n in range(count):
        found += _compare_layers(f"layer {n + 1}", first, second, n)
    lines = (
        *_json_lines("config", _without_layers(first.config), _without_layers(second.config)),
        *_json_lines("annotations", first.annotations, second.annotations),
    )
    if lines:
        found.append(Difference("image", lines))
    return found


def _compare_layers(where: str, first: ReadImage, second: ReadImage, n: int) -> Iterator[Difference]:
    if n >= len(first.layers) or n >= len(second.layers):
        more = second if n >= len(first.layers) else first
        yield Difference(_called(where, more.layers[n]), (f"only in {more.name}",))
        return
    a, b = first.layers[n], second.layers[n]
    where = _called(where, a)
    # Equal diff_ids are equal tar archives: their files need not be compared.
    if a.diff_id == b.diff_id:
        if a.digest and b.digest and a.digest != b.digest:
            # A manipulated image could name the diff_id of the original for other files: this raises PX923 then.
            layer_files(a, first.name)
            yield Difference(where, ("same files, compressed differently", f"{a.digest} ≠ {b.digest}"))
        return
    lines = tuple(file_lines(layer_files(a, first.name), layer_files(b, second.name)))
    yield Difference(where, lines or ("same files in another order or with other headers",))


def _called(where: str, layer: ReadLayer) -> str:
    return f"{where} ({layer.created_by})" if layer.created_by else where


def file_lines(first: dict[str, File], second: dict[str, File]) -> Iterator[str]:
    """A line for each path that differs: ``+`` added, ``-`` removed, ``~`` changed."""
    for path in sorted(first.keys() | second.keys()):
        a, b = first.get(path), second.get(path)
        if a is None:
            yield f"+ {path} ({b})"
        elif b is None:
            yield f"- {path} ({a})"
        elif a != b:
            yield f"~ {path}: {', '.join(_changes(a, b))}"


def _changes(a: File, b: File) -> Iterator[str]:
    if a.kind != b.kind:
        yield f"{a.kind} → {b.kind}"
    if a.mode != b.mode:
        yield f"mode {a.mode:04o} → {b.mode:04o}"
    if a.owner != b.owner:
        yield f"owner {a.owner[0]}:{a.owner[1]} → {b.owner[0]}:{b.owner[1]}"
    if a.size != b.size:
        yield f"size {a.size} → {b.size}"
    if a.content != b.content:
        files = a.kind == b.kind == "file"
        yield f"sha256 {a.content[:12]} → {b.content[:12]}" if files else f"target {a.content} → {b.content}"
    if a.mtime != b.mtime:
        yield f"time {a.mtime} → {b.mtime}"


def _without_layers(config: Json) -> Json:
    """The config without the list of layers, which are compared by themselves."""
    return {key: value for key, value in config.items() if key != "rootfs"}


def _json_lines(where: str, a: object, b: object) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            yield from _json_lines(f"{where}.{key}", a.get(key), b.get(key))
    elif a != b:
        yield f"{where}: {json.dumps(a, ensure_ascii=False)} → {json.dumps(b, ensure_ascii=False)}"
