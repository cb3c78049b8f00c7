"""``px sandbox update``: take newer versions of system packages into the project's pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.project.state import check_frozen
from px.workflow.supply.pins import update

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", nargs="*", metavar="PACKAGE", help="only these, and what they need newer")
    parser.add_argument("--dry-run", action="store_true", help="print what would change and write nothing")


def main(args: argparse.Namespace, context: Context) -> int:
    check_frozen("sandbox update", None if args.dry_run else context.frozen_by)
    found = update(context, args.package, dry_run=args.dry_run)
    if not args.json:
        print("\n".join(found.lines()))
    emit(args, f"{found.count} newer", found.as_json())
    return 0
