"""Where an image can be read from: an OCI layout, an archive (OCI's or Docker's), a registry, or px's own blobs."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from px.errors import PxError
from px.http import FetchError
from px.oci.documents import INDEX_TYPES, MANIFEST_TYPES, Descriptor, Json, Platform, check_digest, digest_of
from px.oci.reference import parse
from px.oci.registry import Registry, RegistryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.oci.blobs import Blobs


class Source(Protocol):
    """A place that holds blobs, and knows which of them is the image."""

    @property
    def name(self) -> str:
        """How to call it in messages."""
        ...

    def tops(self) -> list[Descriptor]:
        """The manifests or indexes that the place itself names."""
        ...

    def open(self, at: Descriptor) -> BinaryIO:
        """The bytes of a blob; whoever reads them checks the digest."""
        ...


@dataclass(frozen=True)
class LayoutSource:
    """An OCI layout directory."""

    directory: Path

    @property
    def name(self) -> str:
        return str(self.directory)

    def tops(self) -> list[Descriptor]:
        return _named(json.loads((self.directory / "index.json").read_bytes()))

    def open(self, at: Descriptor) -> BinaryIO:
        return (self.directory / "blobs" / "sha256" / check_digest(at.digest).removeprefix("sha256:")).open("rb")


class ArchiveSource:
    """A tar of an OCI layout, or one that ``docker save`` wrote."""

    def __init__(self, path: Path):
        self.name = str(path)
        self._path = path
        with tarfile.open(path, "r:") as archive:
            self.members = {
                member.name.removeprefix("./"): (member.offset_data, member.size)
                for member in archive
                if member.isreg()
            }

    def tops(self) -> list[Descriptor]:
        return _named(json.loads(self.member("index.json").read()))

    def open(self, at: Descriptor) -> BinaryIO:
        return self.member("blobs/sha256/" + check_digest(at.digest).removeprefix("sha256:"))

    def member(self, name: str) -> BinaryIO:
        if name not in self.members:
            raise PxError("PX923", source=self.name, problem=f"it has no {name}")
        offset, size = self.members[name]
        return cast("BinaryIO", io.BufferedReader(_Window(self._path, offset, size)))


@dataclass(frozen=True)
class BlobsSource:
    """An image that was packed here, and lies under PX_HOME."""

    name: str
    blobs: Blobs
    digest: str

    def tops(self) -> list[Descriptor]:
        content = self.blobs.read(self.digest)
        return [Descriptor(json.loads(content)["mediaType"], self.digest, len(content))]

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
            raise PxError("PX923", source=self.name, problem="the registry has nothing of this name")
        content, media_type = found
        return [Descriptor(media_type, digest_of(content), len(content))]

    def open(self, at: Descriptor) -> BinaryIO:
        # A registry keeps manifests apart from other blobs.
        if at.media_type not in MANIFEST_TYPES + INDEX_TYPES:
            return cast("BinaryIO", io.BufferedReader(_Pieces(self._registry.blob(at.digest))))
        found = self._registry.manifest(at.digest)
        if found is None:
            raise PxError("PX923", source=self.name, problem=f"the registry has no manifest {at.digest}")
        return io.BytesIO(found[0])


def source_of(text: str, *, insecure: bool = False) -> Source:
    """What a user means by ``text``: a directory, a file, or else a name in a registry."""
    path = Path(text)
    try:
        if path.is_dir():
            (path / "index.json").stat()
            return LayoutSource(path)
        if path.is_file():
            return ArchiveSource(path)
    except FileNotFoundError as e:
        raise PxError("PX923", source=text, problem="the directory has no index.json") from e
    except (OSError, tarfile.TarError) as e:
        problem = f"it is not a tar archive, or a compressed or damaged one ({e})"
        raise PxError("PX923", source=text, problem=problem) from e
    if _looks_like_a_path(text):
        raise PxError("PX923", source=text, problem="there is no such file or directory")
    reference = parse(text)
    if reference.is_local:
        raise PxError("PX923", source=text, problem="no image of this name was packed on this machine")
    return RegistrySource(Registry(reference, insecure=insecure))


def _looks_like_a_path(text: str) -> bool:
    """Whether a file was meant: images have a host in front, and mostly a tag behind."""
    if text.startswith(("/", ".", "~")) or text.endswith((".tar", "/")):
        return True
    host, slash, _ = text.partition("/")
    return ":" not in text and "@" not in text and not (slash and ("." in host or host == "localhost"))


def read_document(source: Source, at: Descriptor) -> Json:
    """A manifest, index or config, checked against its digest."""
    try:
        with source.open(at) as f:
            content = f.read()
        if digest_of(content) != at.digest:
            raise PxError("PX923", source=source.name, problem=f"the content of {at.digest} has another digest")
        return cast("Json", json.loads(content))
    except (OSError, ValueError, FetchError, RegistryError) as e:
        raise PxError("PX923", source=source.name, problem=f"{at.digest} cannot be read: {e}") from e


def manifests(source: Source) -> list[Descriptor]:
    """The manifests behind a source's names, each platform once."""
    try:
        tops = source.tops()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, FetchError, RegistryError) as e:
        raise PxError("PX923", source=source.name, problem=f"its index cannot be read: {e}") from e
    found: dict[str, Descriptor] = {}
    for top in tops:
        if top.media_type in INDEX_TYPES:
            for entry in _named(read_document(source, top)):
                found[entry.digest] = entry
        else:
            found[top.digest] = top
    if not found:
        raise PxError("PX923", source=source.name, problem="its index names no image")
    return list(found.values())


def platform_of(config: Json) -> Platform:
    return Platform(config.get("os", "linux"), config.get("architecture", "unknown"), config.get("variant", ""))


def _named(index: Json) -> list[Descriptor]:
    return [Descriptor.read(found) for found in index["manifests"]]


class _Window(io.RawIOBase):
    """A part of a file as a file."""

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
    """An iterator of bytes as a file."""

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
