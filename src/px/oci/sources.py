"""The places from which px reads images: an OCI layout, an archive (OCI or Docker), a registry, and px's own blobs."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from px import bounds
from px.errors import PxError
from px.http import FetchError
from px.oci.documents import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    NOT_VALID,
    Descriptor,
    Json,
    Platform,
    check_digest,
    digest_of,
)
from px.oci.registry.client import Registry, RegistryError
from px.oci.registry.reference import parse
from px.tarballs import members, open_tar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.oci.blobs import Blobs


class Source(Protocol):
    """A place that has blobs, and knows which of them is the image."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    def tops(self) -> list[Descriptor]:
        """The manifests and indexes that the place itself lists."""
        ...

    def open(self, at: Descriptor) -> BinaryIO:
        """A stream of a blob's bytes.  The caller must check the digest."""
        ...


@dataclass(frozen=True)
class LayoutSource:
    """An OCI layout directory."""

    directory: Path

    @property
    def name(self) -> str:
        return str(self.directory)

    def tops(self) -> list[Descriptor]:
        with (self.directory / "index.json").open("rb") as f:
            return _named(read_json(f))

    def open(self, at: Descriptor) -> BinaryIO:
        return (self.directory / "blobs" / "sha256" / check_digest(at.digest).removeprefix("sha256:")).open("rb")


class ArchiveSource:
    """A tar of an OCI layout, or one that ``docker save`` wrote."""

    def __init__(self, path: Path):
        self.name = str(path)
        self._path = path
        # Only the offsets are kept; blobs are read from the file itself.  That works only if it is not compressed.
        with path.open("rb") as file, open_tar(file, "r:") as archive:
            self.members = {
                member.name.removeprefix("./"): (member.offset_data, member.size)
                for member in members(archive)
                if member.isreg()
            }

    def tops(self) -> list[Descriptor]:
        with self.member("index.json") as f:
            return _named(read_json(f))

    def open(self, at: Descriptor) -> BinaryIO:
        return self.member("blobs/sha256/" + check_digest(at.digest).removeprefix("sha256:"))

    def member(self, name: str) -> BinaryIO:
        if name not in self.members:
            raise PxError("PX923", source=self.name, problem=f"it has no {name}")
        offset, size = self.members[name]
        return cast("BinaryIO", io.BufferedReader(_Window(self._path, offset, size)))


@dataclass(frozen=True)
class BlobsSource:
    """An image that was packed on this machine, in PX_HOME."""

    name: str
    blobs: Blobs
    digest: str

    def tops(self) -> list[Descriptor]:
        content = self.blobs.read(self.digest)
        return [Descriptor(bounds.parse_json(content)["mediaType"], self.digest, len(content))]

    def open(self, at: Descriptor) -> BinaryIO:
        return self.blobs.path(at.digest).open("rb")


class RegistrySource:
    """A name in a registry."""

    def __init__(self, registry: Registry):
        self._registry = registry
        self.name = str(registry.reference)

    def tops(self) -> list[Descriptor]:
        reference = self._registry.reference
        try:
            self._registry.connect()
            found = self._registry.manifest(reference.digest or reference.tag)
        except (FetchError, RegistryError) as e:
            raise self._registry.unreadable(e) from e
        if found is None:
            raise PxError("PX923", source=self.name, problem="the registry has no image of this name")
        content, media_type = found
        return [Descriptor(media_type, digest_of(content), len(content))]

    def open(self, at: Descriptor) -> BinaryIO:
        # Registries serve manifests at another address than other blobs.
        if at.media_type not in MANIFEST_TYPES + INDEX_TYPES:
            # A stream: layers may be larger than the memory.
            return cast("BinaryIO", io.BufferedReader(_Pieces(self._registry.blob(at.digest))))
        found = self._registry.manifest(at.digest)
        if found is None:
            raise PxError("PX923", source=self.name, problem=f"the registry has no manifest {at.digest}")
        return io.BytesIO(found[0])


def source_of(text: str, *, insecure: bool = False) -> Source:
    """The source that a user means by ``text``: a directory, a file, or an image in a registry."""
    path = Path(text)
    try:
        if path.is_dir():
            (path / "index.json").stat()  # raises FileNotFoundError here, not later
            return LayoutSource(path)
        if path.is_file():
            return ArchiveSource(path)
    except FileNotFoundError as e:
        raise PxError("PX923", source=text, problem="the directory has no index.json") from e
    except (OSError, tarfile.TarError) as e:
        problem = f"it is not a tar archive, or a compressed or damaged one ({e})"
        raise PxError("PX923", source=text, problem=problem) from e
    # A mistyped path would otherwise be taken for an image, and px would ask a registry for it.
    if _looks_like_a_path(text):
        raise PxError("PX923", source=text, problem="there is no such file or directory")
    reference = parse(text)
    # The caller has already looked among the images that were packed here.
    if reference.is_local:
        raise PxError("PX923", source=text, problem="no image of this name was packed on this machine")
    return RegistrySource(Registry(reference, insecure=insecure))


def _looks_like_a_path(text: str) -> bool:
    """Whether ``text`` was meant as a path.  Names of images start with a host, and most end with a tag."""
    if text.startswith(("/", ".", "~")) or text.endswith((".tar", "/")):
        return True
    host, slash, _ = text.partition("/")
    return ":" not in text and "@" not in text and not (slash and ("." in host or host == "localhost"))


def read_document(source: Source, at: Descriptor) -> Json:
    """Read a manifest, index or config, and check it against its digest."""
    try:
        # Documents are small; layers are never read in this way.
        with source.open(at) as f:
            content = f.read(bounds.DOCUMENT + 1)
        if len(content) <= bounds.DOCUMENT and digest_of(content) != at.digest:
            raise PxError("PX923", source=source.name, problem=f"the content of {at.digest} has another digest")
        return cast("Json", bounds.parse_json(content))
    except (OSError, ValueError, FetchError, RegistryError) as e:
        raise PxError("PX923", source=source.name, problem=f"{at.digest} cannot be read: {e}") from e


def manifests(source: Source) -> list[Descriptor]:
    """The manifests of a source, each once, although it may have several names."""
    try:
        tops = source.tops()
    except (OSError, ValueError, *NOT_VALID, FetchError, RegistryError) as e:
        raise PxError("PX923", source=source.name, problem=f"its index cannot be read: {e}") from e
    # A layout lists an image once for each name, and an index may be behind each of them.
    found: dict[str, Descriptor] = {}
    for top in tops:
        if top.media_type in INDEX_TYPES:
            document = read_document(source, top)
            try:
                found |= {entry.digest: entry for entry in _named(document)}
            except NOT_VALID as e:
                raise PxError("PX923", source=source.name, problem=f"its index is not valid: {e}") from e
        else:
            found[top.digest] = top
    if not found:
        raise PxError("PX923", source=source.name, problem="its index lists no image")
    return list(found.values())


def read_json(file: BinaryIO) -> Any:
    """A document whose digest nobody says."""
    return bounds.parse_json(file.read(bounds.DOCUMENT + 1))


def platform_of(config: Json) -> Platform:
    return Platform.read(config)


def _named(index: Json) -> list[Descriptor]:
    return [Descriptor.read(found) for found in index["manifests"]]


class _Window(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, path: Path, offset: int, size: int):
        self._file = path.open("rb", buffering=0)
        self._file.seek(offset)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = memoryview(buffer)[: self._left]
        done = self._file.readinto(wanted) or 0
        self._left -= done
        return done

    def close(self) -> None:
        self._file.close()
        super().close()


class _Pieces(io.RawIOBase):
    """An iterator of bytes, as a file."""

    def __init__(self, pieces: Iterator[bytes]):
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                return 0
        done = min(len(buffer), len(self._rest))
        buffer[:done], self._rest = self._rest[:done], self._rest[done:]
        return done
