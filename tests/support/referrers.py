"""Reading what is attached to an image in a registry, as a scanner would."""

from __future__ import annotations

import json

from px.oci.documents import Descriptor
from px.oci.registry.client import Registry
from px.oci.registry.referrers import fallback_tag


def referrers(registry: Registry, digest: str) -> list[Descriptor]:
    """The documents that are attached to a manifest: by the API, or by the tag that stands in for it."""
    registry.connect()
    answer = registry.request("GET", registry.url(f"referrers/{digest}"))
    if answer.status == 200:
        return [Descriptor.read(found) for found in json.loads(answer.data).get("manifests", [])]
    listed = registry.manifest(fallback_tag(digest))
    return [Descriptor.read(found) for found in json.loads(listed[0]).get("manifests", [])] if listed else []
