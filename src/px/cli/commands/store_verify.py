"""``px store verify``: every byte in the store against its hash; damage is repaired."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import console
from px.errors import PxError
from px.store.tree import remove_tree
from px.store.verify import Damage, verify

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Check every object in the store, and repair what is damaged"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-repair", action="store_true", help="only say what is damaged")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.env.repair import REPAIRS

    total, damaged = verify(context.store, REPAIRS, repair=not args.no_repair)
    for damage in damaged:
        _report(damage)
    if not args.no_repair:
        _drop_envs(context, damaged)
    broken = [d for d in damaged if not d.repaired]
    message = (
        f"{total} objects: {'all whole' if not damaged else f'{len(damaged)} damaged, {len(broken)} not repaired'}"
    )
    if broken:
        names = "; ".join(f"{d.kind} {d.oid[:12]}: {d.note}" for d in broken[:5])
        raise PxError("PX803", count=len(broken), total=total, reason=names)
    if not context.json:
        print(message)
    context.emit(message, {"objects": total, "damaged": [vars(d) | {"problems": list(d.problems)} for d in damaged]})
    return 0


def _report(damage: Damage) -> None:
    console.warn(f"{damage.kind} {damage.oid} was damaged: {damage.note}")
    for problem in damage.problems[:5]:
        console.warn(f"  {problem}")


def _drop_envs(context: Context, damaged: list[Damage]) -> None:
    """An env shares its files with the store: one that was made from damaged objects is built again."""
    gone = {f"{d.kind}/{d.oid}" for d in damaged}
    for path in sorted(context.home.refs.glob("*.json")) if gone else ():
        try:
            record: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        for env in record.get("envs", {}).values():
            if gone & set(env["objects"]) and os.path.isdir(env["env"]):
                remove_tree(Path(env["env"]))
                console.warn(f"the env of {record['root']} was made from it and is gone: px sync builds it again")
