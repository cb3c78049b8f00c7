"""``px why``: the chains of requirements that bring a package into the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.project import rules
from px.project.discovery import discover
from px.project.situation import inspect
from px.project.state import Target
from px.project.why import MOST, chains

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Show why a package is in the lock"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="PACKAGE", help="a package of the lock")


def main(args: argparse.Namespace, context: Context) -> int:
    project = discover(context.directory)
    flags = inspect(context.home, project, offline=context.offline).flags(Target.HOST)
    rules.permit("why", flags, frozen_by=context.frozen_by)
    found = chains(project, args.package)
    if not context.json:
        for chain in found:
            print(" → ".join(str(link) for link in chain))
        if len(found) == MOST:
            print(f"… (the {MOST} shortest)")
    steps = [[{"name": s.name, "version": s.version, "via": s.via} for s in chain] for chain in found]
    message = f"{args.package}: {console.counted(len(found), 'chain')}"
    context.emit(message, {"package": args.package, "chains": steps})
    return 0
