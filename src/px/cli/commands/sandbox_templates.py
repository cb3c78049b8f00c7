"""``px sandbox templates``: what px has made of projects' images at providers, and the removal of what is old."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.commands.sandbox_ps import listers, print_table
from px.errors import PxError

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context

COLUMNS = ("backend", "name", "state", "sbx_id", "created", "used")
_MOST_DAYS = 36500


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "remove"), default="list", help="default: list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the templates to remove")
    parser.add_argument("--backend", help="only this provider: daytona or e2b (default: all that you have a key for)")
    parser.add_argument("--older-than", metavar="DAYS", help="those that nobody has used for so many days")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def main(args: argparse.Namespace, context: Context) -> int:
    age = _age(args.older_than)
    _check(args)
    rows, problems = _found(args.backend)
    if args.action == "remove":
        missing = sorted(set(args.names) - {row["name"] for row in rows})
        problems += [f"px made no template called {name[:100]!r}, or it is gone." for name in missing]
        rows = [row for row in rows if row["name"] in args.names or (not args.names and age is not None)]
    rows = [row for row in rows if age is None or _is_older(row, age)]
    for problem in problems:
        console.warn(problem)
    return _remove(args, rows, problems) if args.action == "remove" else _list(args, rows, problems)


def _check(args: argparse.Namespace) -> None:
    if args.action == "remove" and not args.names and args.older_than is None:
        problem, example = "it does not say which", "px sandbox templates remove --older-than 30"
        raise PxError("PX040", option="px sandbox templates", value="remove", problem=problem, example=example)
    if args.action == "list" and args.names:
        problem, example = "names are for remove", "px sandbox templates remove NAME"
        raise PxError("PX040", option="px sandbox templates", value=args.names[0], problem=problem, example=example)


def _age(days: str | None) -> timedelta | None:
    if days is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}d?", days) or int(days.rstrip("d")) > _MOST_DAYS:
        problem, example = "it is not a number of days", "px sandbox templates remove --older-than 30"
        raise PxError("PX040", option="--older-than", value=days, problem=problem, example=example)
    return timedelta(days=int(days.rstrip("d")))


def _found(backend: str | None) -> tuple[list[dict[str, str]], list[str]]:
    rows: list[dict[str, str]] = []
    problems: list[str] = []
    for lister in listers():
        if hasattr(lister, "templates"):  # one of another package may know none
            more, unasked = lister.templates(backend)
            rows += more
            problems += unasked
    return rows, problems


def _is_older(row: dict[str, str], age: timedelta) -> bool:
    """By its last use, or its making.  What says neither counts as new."""
    try:
        last = datetime.fromisoformat(row["used"] or row["created"])
    except ValueError:
        return False
    return datetime.now(UTC) - (last if last.tzinfo else last.replace(tzinfo=UTC)) >= age


def _list(args: argparse.Namespace, rows: list[dict[str, str]], problems: list[str]) -> int:
    if not args.json:
        print_table(COLUMNS, rows)
    emit(args, f"{len(rows)} templates", {"templates": rows, "problems": problems})
    return 1 if problems else 0


def _remove(args: argparse.Namespace, rows: list[dict[str, str]], problems: list[str]) -> int:
    removed = []
    for row in rows:
        console.info(f"{'would remove' if args.dry_run else 'removing'} {row['backend']} {row['name']}")
        problem = None if args.dry_run else _ask_to_remove(row)
        if problem is None:
            removed.append(row)
        else:
            console.warn(problem)
            problems.append(problem)
    details = {"removed": [] if args.dry_run else removed, "dry_run": args.dry_run, "problems": problems}
    emit(args, f"{len(removed)} templates", details)
    return 1 if problems else 0


def _ask_to_remove(row: dict[str, str]) -> str | None:
    asked = [
        lister.remove_template(row["backend"], row["name"]) for lister in listers() if hasattr(lister, "templates")
    ]
    return next(filter(None, asked), None)
