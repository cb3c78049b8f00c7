"""``px store gc``: free the space of what nothing uses any more."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.store.gc import DEFAULT_GRACE, collect

if TYPE_CHECKING:
    from px.project.context import Context

_UNITS = {"": 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "What a project's env, an image or a running process uses always stays."
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument(
        "--grace",
        type=duration,
        default=DEFAULT_GRACE,
        metavar="TIME",
        help="keep what was used within TIME: 12h, 30d, 0 (default: 14d)",
    )


def duration(text: str) -> int:
    found = re.fullmatch(r"(\d+)([dhms]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 14d, 12h or 0")
    return int(found[1]) * _UNITS[found[2]]


def main(args: argparse.Namespace, context: Context) -> int:
    gone = collect(context.store, grace=args.grace, dry_run=args.dry_run)
    size = sum(item.size for item in gone)
    verb = "Would remove" if args.dry_run else "Removed"
    message = (
        f"{verb} {console.counted(len(gone), 'item')}, {console.size(size)}" if gone else "There is nothing to remove"
    )
    if not args.json:
        for item in gone if args.dry_run or args.verbose else ():
            print(f"  {console.size(item.size):>10}  {item.what}  ({item.reason})")
        print(message)
    items = [{"what": i.what, "path": str(i.path), "size": i.size, "reason": i.reason} for i in gone]
    emit(args, message, {"dry_run": args.dry_run, "bytes": size, "items": items})
    return 0
