"""Documents about an image, such as its SBOM, attached to it in a registry as OCI referrers.

A registry with the referrers API (distribution-spec 1.1) says so in its answer, with ``OCI-Subject``.  In other
registries the list of referrers is an index under the tag ``sha256-<digest>``, where clients look for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from px import bounds, console
from px.http import FetchError
from px.oci.documents import EMPTY_TYPE, FORMATS, NOT_VALID, OCI, Descriptor, check_digest, digest_of, encode
from px.oci.registry.client import Registry, RegistryError
from px.oci.registry.push import reported
from px.oci.registry.upload import Sending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.oci.blobs import Blobs

_EMPTY = b"{}"
# What registries answer that accept images only.
_NOT_TAKEN = (400, 404, 405, 406, 415, 422)


class NotTakenError(Exception):
    """The registry accepts images only.  ``reason`` can be shown to the user."""

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
    """Push ``attachment`` as a referrer of ``subject``.  Doing it twice has the same result as doing it once.

    Raises NotTakenError if the registry does not accept such documents.  The image works without them.
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
        # A manifest must have a config: image-spec 1.1 uses the empty document {} for what is not an image.
        for content in (_EMPTY, attachment.content):
            digest = blobs.add(content)
            if not registry.has_blob(digest):
                Sending(registry, digest, blobs.path(digest)).run()
        try:
            answer = registry.put_manifest(at.digest, manifest, at.media_type)
            # The registry did not process the field `subject`: it has no referrers API.
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


def fallback_tag(digest: str) -> str:
    return digest.replace(":", "-")


def _listed(registry: Registry, digest: str) -> list[dict[str, Any]]:
    found = registry.manifest(fallback_tag(digest))
    try:
        entries = bounds.parse_json(found[0]).get("manifests", []) if found is not None else []
        return [entry for entry in entries if check_digest(entry["digest"])]
    except NOT_VALID as e:
        raise FetchError(f"{registry.host} sent a list of documents that is not valid: {e}") from e


def _list_under_tag(registry: Registry, subject: Descriptor, added: Descriptor) -> None:
    # Read, add, write: another client that does the same at this moment can be lost.  The specification's fallback has
    # no better way.
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
