"""``px update``: newer versions into the lock and the env; the manifest stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.commands.sync import report
from px.project import lock

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Lock newer versions"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="only these (default: all)")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import change

    names = tuple(args.packages)
    report(context, change(context, "update", lambda p: lock.relock(p, upgrade=names, offline=context.offline)))
    return 0
