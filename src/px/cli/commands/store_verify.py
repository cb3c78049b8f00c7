"""``px store verify``: every byte in the store against its hash; damage is repaired."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import console
from px.errors import PxError
from px.store.tree import remove_tree
from px.store.verify import Damage, verify

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from px.cli.context import Context

SUMMARY = "Check every object in the store, and repair what is damaged"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "What was downloaded is fetched again, what was built is built again, for every project of this machine\n"
        "that uses it."
    )
    parser.add_argument("--no-repair", action="store_true", help="only say what is damaged")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.env.repair import REPAIRS

    repair = not args.no_repair
    lost = missing(context)
    total, damaged = verify(context.store, REPAIRS, repair=repair)
    damaged += lost
    if repair and damaged:
        rebuild(context, damaged)
        damaged = [_again(context, d) for d in damaged]
    damaged += blobs(context, repair=repair)
    for damage in damaged:
        _report(damage)
    broken = [d for d in damaged if not d.repaired]
    found = f"{len(damaged)} damaged, {len(broken)} not repaired" if damaged else "all whole"
    message = f"{total} objects: {found}"
    if broken:
        names = "; ".join(f"{d.kind} {d.file or d.oid[:12]}: {d.note}" for d in broken[:5])
        remedy = "Build again what needs them: px sync --force" if repair else "Repair them: px store verify"
        raise PxError("PX803", count=len(broken), total=total, reason=names, remedy=remedy)
    if not context.json:
        print(message)
    context.emit(message, {"objects": total, "damaged": [vars(d) | {"problems": list(d.problems)} for d in damaged]})
    return 0


def _report(damage: Damage) -> None:
    file = f" ({damage.file})" if damage.file else ""
    console.warn(f"{damage.kind} {damage.oid}{file} was damaged: {damage.note}")
    for problem in damage.problems[:5]:
        console.warn(f"  {problem}")


def _again(context: Context, damage: Damage) -> Damage:
    """Whether an object that could not be repaired by itself was made again with the project that uses it."""
    if damage.repaired or not context.store.has(damage.kind, damage.oid):
        return damage
    whole = not context.store.problems(damage.kind, damage.oid)
    return replace(damage, repaired=whole, note="made again") if whole else damage


def rebuild(context: Context, damaged: list[Damage]) -> None:
    """Build again what was made from damaged objects: an env shares its files with the store."""
    from px.cli.workflow import build_target
    from px.project.discovery import discover
    from px.project.situation import inspect, remember
    from px.project.state import Target

    gone = {f"{d.kind}/{d.oid}" for d in damaged}
    for root, target, env in affected(context, gone):
        console.info(f"Building the {target} env of {root} again …")
        try:
            if target == Target.HOST.value:
                remove_tree(Path(env))
            situation = inspect(context.home, discover(Path(root)), offline=context.offline)
            chosen = situation.selection(Target(target))
            remember(situation, Target(target), build_target(context, situation, Target(target), chosen, force=True))
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
                found += [(record["root"], name, env["env"], env["objects"]) for name, env in record["envs"].items()]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _refs(context: Context, ref: str) -> list[str]:
    kind, _, oid = ref.partition("/")
    found = context.store.meta(kind, oid).get("refs", [])
    return list(found) if isinstance(found, list) else []


def blobs(context: Context, *, repair: bool) -> list[Damage]:
    """Packed layers: a damaged one is removed, and made again by the next ``px pack image``."""
    from px.oci.blobs import Blobs

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
