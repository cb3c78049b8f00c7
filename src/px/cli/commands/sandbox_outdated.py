"""``px sandbox outdated``: which system packages have newer versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.workflow.supply.pins import outdated

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--security", action="store_true", help="only those with a fix from the security archive")
    parser.epilog = "Exit code: 0 if nothing is newer, 1 if something is, 120 and more if px could not find out."


def main(args: argparse.Namespace, context: Context) -> int:
    found = outdated(context)
    found = found.security() if args.security else found
    if not args.json:
        print("\n".join(found.lines()))
    emit(args, f"{found.count} newer", found.as_json())
    return 1 if found.count else 0
