"""Makes the config and the manifest of an image from an :class:`ImageSpec` and its layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from px.oci.documents import FORMATS, OCI, Descriptor, Json, Platform, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from px.oci.blobs import Blobs, LayerBlob


@dataclass(frozen=True)
class ImageSpec:
    """What the config and the annotations of an image say, except its layers."""

    platform: Platform
    created: int
    """Seconds since 1970.  The time of the commit, not of the clock: packing again must give the same image."""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/app"
    user: str = "1000:1000"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"
    ports: tuple[str, ...] = ()
    """Such as ``8000`` or ``53/udp``."""
    volumes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    author: str = ""


@dataclass(frozen=True)
class LayerUse:
    """A layer of an image, and its line in the image's history (``px: base debian-12``)."""

    blob: LayerBlob
    created_by: str


@dataclass(frozen=True)
class BuiltImage:
    """The image of one platform.  Its manifest and config are blobs, like its layers."""

    manifest: Descriptor
    config: Descriptor
    layers: tuple[LayerUse, ...]
    spec: ImageSpec
    format: str = OCI

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def size(self) -> int:
        """The bytes that a machine downloads if it has none of the blobs."""
        return self.manifest.size + self.config.size + sum(use.blob.size for use in self.layers)

    def blob_digests(self) -> tuple[str, ...]:
        """Every blob of the image, in the order of upload: a registry may refuse a manifest whose blobs it lacks."""
        return (*dict.fromkeys(use.blob.digest for use in self.layers), self.config.digest, self.manifest.digest)


def build_image(blobs: Blobs, spec: ImageSpec, layers: Sequence[LayerUse], *, format: str = OCI) -> BuiltImage:  # noqa: A002
    """Make config and manifest, and store them as blobs."""
    media = FORMATS[format]
    config = encode(config_document(spec, layers))
    config_at = Descriptor(media.config, blobs.add(config), len(config))
    described = [
        Descriptor(media.layer(use.blob.compression), use.blob.digest, use.blob.size).document() for use in layers
    ]
    document: Json = {
        "schemaVersion": 2,
        "mediaType": media.manifest,
        "config": config_at.document(),
        "layers": described,
    }
    # Docker's format has no annotations; its images have only labels.
    if media.annotated and spec.annotations:
        document["annotations"] = dict(spec.annotations)
    manifest = encode(document)
    at = Descriptor(media.manifest, blobs.add(manifest), len(manifest), platform=spec.platform)
    return BuiltImage(at, config_at, tuple(layers), spec, format)


def build_index(
    blobs: Blobs, images: Sequence[BuiltImage], *, annotations: Mapping[str, str] | None = None
) -> Descriptor:
    """Make an image index: a document that lists the images of several platforms."""
    media = FORMATS[images[0].format]
    document: Json = {
        "schemaVersion": 2,
        "mediaType": media.index,
        "manifests": [image.manifest.document() for image in images],
    }
    if media.annotated and annotations:
        document["annotations"] = dict(annotations)
    content = encode(document)
    return Descriptor(media.index, blobs.add(content), len(content))


def config_document(spec: ImageSpec, layers: Sequence[LayerUse]) -> Json:
    created = timestamp(spec.created)
    document: Json = {
        "created": created,
        **spec.platform.document(),
        "config": _run_config(spec),
        "rootfs": {"type": "layers", "diff_ids": [use.blob.diff_id for use in layers]},
        "history": [{"created": created, "created_by": use.created_by} for use in layers],
    }
    if spec.author:
        document["author"] = spec.author
    return document


def _run_config(spec: ImageSpec) -> Json:
    found: Json = {
        "Env": [f"{name}={spec.env[name]}" for name in sorted(spec.env)],
        "WorkingDir": spec.workdir,
        "User": spec.user,
        "Entrypoint": list(spec.entrypoint),
        "Cmd": list(spec.cmd),
        "StopSignal": spec.stop_signal,
        # A set, written as an object with empty values: so the image specification wants ports and volumes.
        "ExposedPorts": {port if "/" in port else f"{port}/tcp": {} for port in spec.ports},
        "Volumes": {volume: {} for volume in spec.volumes},
        "Labels": dict(spec.labels),
    }
    # Empty fields are left out, so that the same settings always give the same bytes.
    return {key: value for key, value in found.items() if value}


def timestamp(seconds: int) -> str:
    """A time as RFC 3339 in UTC, as configs and annotations need it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
