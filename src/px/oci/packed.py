"""The images that were packed on this machine: which names, which blobs, made from what.

One small file per name under ``PX_HOME/sandbox/packed``.  They are what a push, a load or a verification
starts from later, and the roots that keep blobs from garbage collection.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from px.errors import PxError
from px.oci.documents import Descriptor, check_digest
from px.oci.failures import building
from px.store.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from px.home import Home
    from px.oci.blobs import Blobs
    from px.oci.layout import Release
    from px.oci.reference import Reference


@dataclass(frozen=True)
class Packed:
    """What is known about one name."""

    name: str
    top: Descriptor
    blobs: tuple[str, ...]
    made: int
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the image was made from: base, profile, sandbox id, capabilities."""


def remember(blobs: Blobs, what: Release, details: Mapping[str, Any]) -> None:
    """Keep the release under each of its names; a name that was used before now means this one."""
    with building(blobs.home, _folder(blobs.home)):
        for name in what.names:
            document = {
                "name": str(name),
                "top": what.top.document(),
                "blobs": list(what.blob_digests()),
                "made": int(time.time()),
                "details": dict(details),
            }
            write_json(_folder(blobs.home) / _file_name(str(name)), document)


def packed(home: Home) -> Iterator[Packed]:
    """Every image that was packed here, by name; a damaged record is as if it were not there."""
    folder = _folder(home)
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        found = _read(path)
        if found is not None:
            yield found


def find(home: Home, name: Reference) -> Packed | None:
    return _read(_folder(home) / _file_name(str(name)))


def forget(home: Home, name: str) -> None:
    (_folder(home) / _file_name(name)).unlink(missing_ok=True)


def referenced(home: Home) -> frozenset[str]:
    """The blobs that some name still needs."""
    return frozenset(digest for image in packed(home) for digest in image.blobs)


@dataclass(frozen=True)
class PackedSource:
    """An image of this machine as a source to read from."""

    image: Packed
    blobs: Blobs

    @property
    def name(self) -> str:
        return self.image.name

    def tops(self) -> list[Descriptor]:
        return [self.image.top]

    def open(self, at: Descriptor) -> BinaryIO:
        try:
            return self.blobs.path(at.digest).open("rb")
        except FileNotFoundError:
            raise PxError("PX923", source=self.name, problem=f"its blob {at.digest} is gone") from None


def _folder(home: Home) -> Path:
    return home.sandbox / "packed"


def _file_name(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest() + ".json"


def _read(path: Path) -> Packed | None:
    try:
        found = json.loads(path.read_bytes())
        return Packed(
            str(found["name"]),
            Descriptor.read(found["top"]),
            tuple(check_digest(digest) for digest in found["blobs"]),
            int(found["made"]),
            found.get("details") or {},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
