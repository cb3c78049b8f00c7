"""Making damaged objects again: a source is fetched, a pkg-build is unpacked from its wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.env.wheel import WheelOf, unpack_wheel
from px.errors import PxError
from px.http import Download, Http
from px.store.sources import ensure_source, find_source, source_ref

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.store.objects import Draft, Payload, Store
    from px.store.verify import Repair


def refetch(store: Store, oid: str, payload: Payload | None, meta: dict[str, object]) -> None:
    url, key = meta.get("url"), meta.get("key")
    if not isinstance(url, str) or not isinstance(key, str):
        raise PxError("PX801", kind="source", oid=oid)
    size = payload.get("size") if payload else None
    ensure_source(store, Http(), Download(url, key, size if isinstance(size, int) else None))


def unpack_again(store: Store, oid: str, payload: Payload | None, meta: dict[str, object]) -> None:
    """Only a pkg-build whose key is its wheel's hash can be made without the project that asked for it."""
    key, filename = str(meta.get("key", "")), str(meta.get("filename", ""))
    wheel = find_source(store, key) if filename.endswith(".whl") else None
    if wheel is None:
        raise PxError("PX801", kind="pkg-build", oid=oid)

    def make(draft: Draft) -> Payload:
        name, version = filename.split("-", maxsplit=1)[0].replace("_", "-").lower(), filename.split("-")[1]
        if payload is not None:
            name, version = str(payload["name"]), str(payload["version"])
        draft.refs.append(source_ref(key, wheel.stat().st_size))
        draft.notes["filename"] = filename
        return unpack_wheel(wheel, draft.tree(), WheelOf(name, version, key, filename))

    store.ensure("pkg-build", key, make)


REPAIRS: Mapping[str, Repair] = {"source": refetch, "pkg-build": unpack_again}
