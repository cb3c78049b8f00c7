"""``px store verify``: compare every byte of every object with its oid, and repair what does not match."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from px import console
from px.store.files import write_atomically
from px.store.gc import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from px.store.objects import Payload, Store

Repair: TypeAlias = "Callable[[Store, str, Payload | None, dict[str, object]], None]"
# Sources come first: other objects are built from them, and can be repaired only from intact sources.
_ORDER = ("source", "runtime", "pkg-build", "profile", "sandbox-base", "layer")


@dataclass(frozen=True)
class Damage:
    """An object whose content does not match its oid, and what was done about it."""

    kind: str
    oid: str
    problems: tuple[str, ...]
    repaired: bool
    note: str
    file: str = ""
    """The file name of what it was made from, if known."""


def verify(store: Store, repairs: Mapping[str, Repair], *, repair: bool) -> tuple[int, list[Damage]]:
    """Check all objects; return their number and the damaged ones."""
    objects = sorted(store.objects(), key=lambda o: (_ORDER.index(o[0]) if o[0] in _ORDER else len(_ORDER), o))
    total = sum(size_of(store.path(kind, oid)) for kind, oid in objects)
    damaged: list[Damage] = []
    # Threads are enough: hashlib releases the GIL.
    with (
        console.progress(f"Checking {console.counted(len(objects), 'object')}", total) as bar,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):

        def check(item: tuple[str, str]) -> list[str]:
            problems = store.problems(*item)
            bar.advance(size_of(store.path(*item)))
            return problems

        for (kind, oid), problems in zip(objects, pool.map(check, objects), strict=True):
            if problems:
                file = store.file_of(kind, oid)
                damaged.append(Damage(kind, oid, tuple(problems), repaired=False, note="left as it is", file=file))
    if repair:
        damaged = [_repair(store, repairs, d) for d in damaged]
    rebuild_index(store)
    return len(objects), damaged


def _repair(store: Store, repairs: Mapping[str, Repair], damage: Damage) -> Damage:
    kind, oid = damage.kind, damage.oid
    meta = store.meta(kind, oid)
    try:
        payload = store.payload(kind, oid)
    except Exception:  # noqa: BLE001 - a damaged payload is one of the damages to repair
        payload = None
    # Removed in any case: a damaged object must not be used, and `ensure` would find it and stop there.
    store.discard(kind, oid)
    if kind not in repairs:
        return replace(damage, note="removed; the next px sync makes it again")
    try:
        repairs[kind](store, oid, payload, meta)
    except Exception as e:  # noqa: BLE001 - report the reason and go on with the next object
        first = str(e).splitlines()[0] if str(e) else type(e).__name__
        return replace(damage, note=f"removed; not made again: {first}")
    # What was made again need not be the same object: a build may not be reproducible.
    whole = store.has(kind, oid) and not store.problems(kind, oid)
    note = "made again" if whole else "removed; the next px sync makes it again"
    return replace(damage, repaired=whole, note=note)


def rebuild_index(store: Store) -> None:
    """Write the index again.  It is a cache of the keys that the objects have in their meta.json."""
    for kind, oid in store.objects():
        key = store.meta(kind, oid).get("key")
        if isinstance(key, str):
            path = store.home.index / kind / key
            if not path.is_file() or path.read_text() != oid:
                write_atomically(path, oid.encode(), durable=False)
