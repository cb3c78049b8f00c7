"""Verification of the whole store, and of what projects made from it; damage is repaired where it can be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import console
from px.errors import PxError
from px.oci.blobs import Blobs
from px.project.state import Target
from px.store.tree import remove_tree
from px.store.verify import Damage, verify
from px.workflow.door import Wish, ensure
from px.workflow.repair import REPAIRS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.project.context import Context


def verify_everything(context: Context, *, repair: bool) -> tuple[int, list[Damage]]:
    """How many objects there are, and what was damaged."""
    lost = missing(context)
    total, damaged = verify(context.store, REPAIRS, repair=repair)
    damaged += lost
    if repair and damaged:
        rebuild(context, damaged)
        damaged = [_again(context, d) for d in damaged]
    return total, damaged + blobs(context, repair=repair)


def _again(context: Context, damage: Damage) -> Damage:
    """Whether an object that could not be repaired by itself was made again with the project that uses it."""
    if damage.repaired or not context.store.has(damage.kind, damage.oid):
        return damage
    whole = not context.store.problems(damage.kind, damage.oid)
    return replace(damage, repaired=whole, note="made again") if whole else damage


def rebuild(context: Context, damaged: list[Damage]) -> None:
    """Build again what was made from damaged objects: an env shares its files with the store."""
    gone = {f"{d.kind}/{d.oid}" for d in damaged}
    for root, target, env in affected(context, gone):
        console.info(f"Building the {target} env of {root} again …")
        try:
            if target == Target.HOST.value:
                remove_tree(Path(env))
            ensure(replace(context, directory=Path(root)), Wish("sync", Target(target), force=True))
        except (PxError, OSError) as e:
            console.warn(f"the {target} env of {root} could not be built again: {str(e).splitlines()[0]}")


def missing(context: Context) -> list[Damage]:
    """What the env of a project needs and the store does not have."""
    needed = {ref for *_, objects in envs(context) for ref in objects}
    gone = sorted(tuple(ref.split("/", 1)) for ref in needed if not context.store.has(*ref.split("/", 1)))
    return [Damage(kind, oid, ("it is missing",), repaired=False, note="not made again") for kind, oid in gone]


def affected(context: Context, gone: set[str]) -> Iterator[tuple[str, str, str]]:
    """(project, target, env) of every env that was made from one of these objects."""
    for root, target, env, objects in envs(context):
        if gone & {r for o in objects for r in (o, *_refs(context, o))}:
            yield root, target, env


def envs(context: Context) -> list[tuple[str, str, str, list[str]]]:
    """(project, target, env, objects) of every env on this machine whose project is still there."""
    found = []
    for path in sorted(context.home.refs.glob("*.json")):
        try:
            record: dict[str, Any] = json.loads(path.read_bytes())
            if (Path(record["root"]) / "pyproject.toml").is_file():
                rows = record["envs"].items()
                found += [(record["root"], name, env["directory"], env["objects"]) for name, env in rows]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _refs(context: Context, ref: str) -> list[str]:
    kind, _, oid = ref.partition("/")
    found = context.store.meta(kind, oid).get("refs", [])
    return list(found) if isinstance(found, list) else []


def blobs(context: Context, *, repair: bool) -> list[Damage]:
    """Packed layers: a damaged one is removed, and made again by the next ``px pack image``."""
    store = Blobs(context.home)
    found = []
    for digest in list(store.digests()):
        problems = store.problems(digest)
        if problems:
            if repair:
                store.path(digest).unlink()
            note = "removed; px pack image makes it again" if repair else "left as it is"
            found.append(Damage("blob", digest, tuple(problems), repaired=repair, note=note))
    return found
