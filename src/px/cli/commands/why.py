"""``px why``: the chains of requirements that bring a package into the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.project import state as rules
from px.project.situation import inspect
from px.project.state import Target
from px.workflow.why import MOST, chains

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="PACKAGE", help="a package of the lock")


def main(args: argparse.Namespace, context: Context) -> int:
    rules.permit("why", inspect(context).flags(Target.HOST), frozen_by=context.frozen_by)
    found = chains(context.project, args.package)
    if not args.json:
        for chain in found:
            print(" → ".join(str(link) for link in chain))
        if len(found) == MOST:
            print(f"… (the {MOST} shortest)")
    steps = [[{"name": s.name, "version": s.version, "via": s.via} for s in chain] for chain in found]
    message = f"{args.package}: {console.counted(len(found), 'chain')}"
    emit(args, message, {"package": args.package, "chains": steps})
    return 0
