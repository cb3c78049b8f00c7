"""``px update``: newer versions into the lock and the env; the manifest stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.commands.sync import add_target, report, target_of
from px.project import lock
from px.project.why import check_locked

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.project.discovery import Project

SUMMARY = "Lock newer versions"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="only these (default: all)")
    add_target(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import change

    names = tuple(args.packages)

    def action(project: Project) -> None:
        if names and project.lock.is_file():
            check_locked(project, names)
        lock.relock(project, upgrade=names, offline=context.offline)

    target = target_of(args)
    report(context, change(context, "update", action, target), target)
    return 0
