"""``px store verify``: every byte in the store against its hash; damage is repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.errors import PxError
from px.workflow.verify import verify_everything

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context
    from px.store.verify import Damage


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "What was downloaded is fetched again, what was built is built again, for every project of this machine\n"
        "that uses it."
    )
    parser.add_argument("--no-repair", action="store_true", help="only say what is damaged")


def main(args: argparse.Namespace, context: Context) -> int:
    repair = not args.no_repair
    total, damaged = verify_everything(context, repair=repair)
    for damage in damaged:
        _report(damage)
    broken = [d for d in damaged if not d.repaired]
    found = f"{len(damaged)} damaged, {len(broken)} not repaired" if damaged else "all whole"
    message = f"{console.counted(total, 'object')}: {found}"
    if broken:
        names = "; ".join(f"{d.kind} {d.file or d.oid[:12]}: {d.note}" for d in broken[:5])
        remedy = "Build again what needs them: px sync --force" if repair else "Repair them: px store verify"
        raise PxError("PX803", count=len(broken), total=total, reason=names, remedy=remedy)
    if not args.json:
        print(message)
    emit(args, message, {"objects": total, "damaged": [vars(d) | {"problems": list(d.problems)} for d in damaged]})
    return 0


def _report(damage: Damage) -> None:
    file = f" ({damage.file})" if damage.file else ""
    console.warn(f"{damage.kind} {damage.oid}{file} was damaged: {damage.note}")
    for problem in damage.problems[:5]:
        console.warn(f"  {problem}")
