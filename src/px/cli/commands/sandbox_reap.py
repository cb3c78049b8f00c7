"""``px sandbox reap``: end the sandboxes of Metaflow steps that nobody waits for any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.commands.sandbox_ps import add_selection, found, listers

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    parser.add_argument("--all", action="store_true", help="end also those in use, here or on other machines")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be ended")


def main(args: argparse.Namespace, context: Context) -> int:
    listed, problems = found(args)
    rows = [row for row in listed if args.all or row["state"] == "orphaned"]
    failed = 0
    if not rows:
        console.info("There is nothing to end")
    for row in rows:
        console.info(f"{'would end' if args.dry_run else 'ending'} {row['backend']} {row['id']}")
        if not args.dry_run:
            failed += not _end(row)
    details: dict[str, object] = {
        "ended": [] if args.dry_run else rows,
        "failed": failed,
        "dry_run": args.dry_run,
        "problems": problems,
    }
    emit(args, console.counted(len(rows), "sandbox", "sandboxes"), details)
    return 1 if failed or problems else 0


def _end(row: dict[str, str]) -> bool:
    problems = [lister.end(row["backend"], row["id"]) for lister in listers()]
    for problem in problems:
        if problem is not None:
            console.warn(problem)
    return problems.count(None) == len(problems)
