"""The JSON documents of an image: media types, encoding, platforms and descriptors.

The specification is https://github.com/opencontainers/image-spec.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from px.errors import PxError
from px.oci.compress import GZIP, ZSTD

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

OCI, DOCKER = "oci", "docker"
# The config of a manifest that is not an image: the two bytes {} (image-spec 1.1).
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

# What comes of a document that has other types in it than it should, or lacks something.
NOT_VALID = (ValueError, LookupError, TypeError, AttributeError, OverflowError)

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Format:
    """The media types of one family: OCI's, or Docker's older ones."""

    name: str
    manifest: str
    index: str
    config: str
    layers: Mapping[str, str]
    annotated: bool
    """Whether manifests of this family may have annotations."""

    def layer(self, compression: str) -> str:
        if compression not in self.layers:
            raise PxError(
                "PX903",
                problem=f"an image in {self.name} format cannot have layers compressed with {compression}",
                fix=["Use --compression gzip or --format oci."],
            )
        return self.layers[compression]


FORMATS = {
    OCI: Format(
        OCI,
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.config.v1+json",
        {
            GZIP: "application/vnd.oci.image.layer.v1.tar+gzip",
            ZSTD: "application/vnd.oci.image.layer.v1.tar+zstd",
        },
        annotated=True,
    ),
    # "Image manifest version 2, schema 2".  It has no media type for zstd and no annotations.
    DOCKER: Format(
        DOCKER,
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.container.image.v1+json",
        {GZIP: "application/vnd.docker.image.rootfs.diff.tar.gzip"},
        annotated=False,
    ),
}
_PLATFORM = (("os", "linux"), ("architecture", "unknown"), ("variant", ""))
MANIFEST_TYPES = tuple(f.manifest for f in FORMATS.values())
INDEX_TYPES = tuple(f.index for f in FORMATS.values())


@dataclass(frozen=True)
class Platform:
    """The platform of an image, such as ``linux/arm64/v8``."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))

    @classmethod
    def read(cls, found: Json) -> Platform:
        return cls(*(text(found.get(key, default)) for key, default in _PLATFORM))

    def document(self) -> Json:
        found = {"os": self.os, "architecture": self.architecture}
        return found | ({"variant": self.variant} if self.variant else {})


@dataclass(frozen=True)
class Descriptor:
    """Type, digest and size of a blob: the way in which OCI documents refer to each other."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    platform: Platform | None = None
    artifact_type: str = ""

    def document(self) -> Json:
        found: Json = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.annotations:
            found["annotations"] = dict(self.annotations)
        if self.platform is not None:
            found["platform"] = self.platform.document()
        if self.artifact_type:
            found["artifactType"] = self.artifact_type
        return found

    @classmethod
    def read(cls, found: Json) -> Descriptor:
        platform = found.get("platform")
        return cls(
            text(found["mediaType"]),
            check_digest(found["digest"]),
            int(found["size"]),
            texts(found.get("annotations")),
            Platform.read(platform) if platform else None,
            text(found.get("artifactType", "")),
        )


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is not a text")
    return value


def texts(value: object) -> dict[str, str]:
    """Labels or annotations: texts by name.  Left out, or null, they are empty."""
    if not isinstance(value or {}, dict):
        raise TypeError(f"{value!r:.100} is not a table of texts")
    return {name: text(found) for name, found in dict(value or {}).items()}  # type: ignore[call-overload]


def encode(document: object) -> bytes:
    """JSON with sorted keys and no white space, so that the same document always has the same digest."""
    # Not canonical_encode, which is for px's ids: it would wrap the document into [kind, payload].
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def check_digest(text: object) -> str:
    """Return ``text`` if it is a sha256 digest, otherwise raise.  Digests become file names and URLs."""
    if not isinstance(text, str) or _DIGEST.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a sha256 digest")
    return text
