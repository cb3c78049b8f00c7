"""Filling the shared cache: the objects of a project in a registry, each under a tag, and all under one more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.errors import PxError
from px.oci.blobs import Blobs
from px.oci.objects import EMPTY_DIGEST, manifest_of, pack_object
from px.oci.registry.client import Registry
from px.oci.registry.push import AT_ONCE, push_blobs, reported
from px.workflow.supply.objects import collect, selections
from px.workflow.supply.remote import OBJECT, cache_of, set_tag, sign, tag_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.oci.documents import Descriptor
    from px.project.situation import Situation


@dataclass(frozen=True)
class PushedCache:
    """What a push did."""

    cache: str
    objects: int
    sent: int
    sent_bytes: int


def push_cache(situation: Situation, architectures: Sequence[str]) -> PushedCache:
    """Push what the project's sandbox and image consist of; what the cache has is not sent again."""
    context = situation.context
    reference = cache_of(context)
    if reference is None:
        raise PxError("PX953", problem="neither [tool.px] cache nor PX_CACHE names one")
    if context.offline:
        raise PxError("PX953", problem="px is offline")
    blobs, registry = Blobs(context.home), Registry(reference)
    tags: dict[str, Descriptor] = {}
    digests, count = [EMPTY_DIGEST], 0
    for architecture in architectures:
        for selection in selections(situation):
            found = collect(situation, [architecture], [selection])
            packed = [sign(pack_object(context.store, blobs, name, oid)) for name, oid in found.items()]
            tags |= {tag_of(one.name): manifest_of(blobs, OBJECT, [one]) for one in packed}
            tags[set_tag(situation, selection, architecture)] = manifest_of(blobs, OBJECT, packed)
            digests += [at.digest for one in packed for at in one.blobs]
            count += len(packed)
    wanted = list(dict.fromkeys(digests))
    with reported(registry, f"filling the cache {reference.repository}"):
        registry.connect()
        _, _, sent, size = push_blobs(blobs, registry, wanted, reference)
        # The tags come last, so that none means an object whose blobs are not there; that of the set after all others.
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda tag: _tag(blobs, registry, tag, tags[tag]), tags))
    return PushedCache(reference.repository, count, len(sent), size)


def _tag(blobs: Blobs, registry: Registry, tag: str, at: Descriptor) -> None:
    registry.put_manifest(tag, blobs.read(at.digest), at.media_type)
