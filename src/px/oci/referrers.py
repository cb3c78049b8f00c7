"""Documents that belong to an image (its SBOM), attached to it in a registry as OCI referrers.

A registry that knows referrers says so in its answer (``OCI-Subject``).  For the others the list of
referrers is an index under the tag ``sha256-<digest>``, which clients know to look for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from px import console
from px.oci.documents import EMPTY_TYPE, FORMATS, OCI, Descriptor, digest_of, encode
from px.oci.push import reported
from px.oci.registry import Registry, RegistryError
from px.oci.upload import send_blob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.oci.blobs import Blobs

_EMPTY = b"{}"
# How registries say that they take images only.
_NOT_TAKEN = (400, 404, 405, 406, 415, 422)


class NotTakenError(Exception):
    """The registry takes no documents beside images; ``reason`` is fit to be shown."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Attachment:
    """A document about an image."""

    media_type: str
    content: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


def attach(blobs: Blobs, registry: Registry, subject: Descriptor, attachment: Attachment) -> Descriptor:
    """Push ``attachment`` so that it is found from ``subject``; doing it again changes nothing.

    NotTakenError if the registry does not know such documents: the image itself is good without them.
    """
    manifest = attachment_manifest(subject, attachment)
    at = Descriptor(
        FORMATS[OCI].manifest,
        digest_of(manifest),
        len(manifest),
        attachment.annotations,
        artifact_type=attachment.media_type,
    )
    with reported(registry, f"attaching a document to {registry.reference}"):
        registry.connect()
        for content in (_EMPTY, attachment.content):
            digest = blobs.add(content)
            if not registry.has_blob(digest):
                send_blob(registry, digest, blobs.path(digest))
        try:
            answer = registry.put_manifest(at.digest, manifest, at.media_type)
            if "OCI-Subject" not in answer:
                _list_under_tag(registry, subject, at)
        except RegistryError as e:
            if e.status in _NOT_TAKEN:
                raise NotTakenError(console.redact(e.reason)) from e
            raise
    return at


def attachment_manifest(subject: Descriptor, attachment: Attachment) -> bytes:
    content = Descriptor(attachment.media_type, digest_of(attachment.content), len(attachment.content))
    return encode(
        {
            "schemaVersion": 2,
            "mediaType": FORMATS[OCI].manifest,
            "artifactType": attachment.media_type,
            "config": Descriptor(EMPTY_TYPE, digest_of(_EMPTY), len(_EMPTY)).document(),
            "layers": [content.document()],
            "subject": Descriptor(subject.media_type, subject.digest, subject.size).document(),
            "annotations": dict(attachment.annotations),
        }
    )


def referrers(registry: Registry, digest: str) -> list[Descriptor]:
    """What is attached to the manifest ``digest``."""
    with reported(registry, f"reading what is attached to {registry.reference}"):
        registry.connect()
        answer = registry.request("GET", registry.url(f"referrers/{digest}"))
        if answer.status == 200:
            return [Descriptor.read(found) for found in json.loads(answer.data).get("manifests", [])]
        return [Descriptor.read(found) for found in _listed(registry, digest)]


def fallback_tag(digest: str) -> str:
    return digest.replace(":", "-")


def _listed(registry: Registry, digest: str) -> list[dict[str, Any]]:
    found = registry.manifest(fallback_tag(digest))
    return list(json.loads(found[0]).get("manifests", [])) if found is not None else []


def _list_under_tag(registry: Registry, subject: Descriptor, added: Descriptor) -> None:
    entries = {entry["digest"]: entry for entry in _listed(registry, subject.digest)}
    if added.digest in entries:
        return
    entries[added.digest] = added.document()
    index = {
        "schemaVersion": 2,
        "mediaType": FORMATS[OCI].index,
        "manifests": [entries[digest] for digest in sorted(entries)],
    }
    registry.put_manifest(fallback_tag(subject.digest), encode(index), FORMATS[OCI].index)
