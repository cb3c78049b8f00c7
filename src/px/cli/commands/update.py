"""``px update``: newer versions into the lock and the env; the manifest stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.commands.sync import report
from px.cli.flags import add_target, target_of
from px.project import lock
from px.workflow.door import change
from px.workflow.why import check_locked

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="only these (default: all)")
    add_target(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    names = tuple(args.packages)

    def action(context: Context) -> None:
        if names and context.project.lock.is_file():
            check_locked(context.project, names)
        lock.relock(context, upgrade=names)

    report(args, change(context, "update", target_of(args), action))
    return 0
