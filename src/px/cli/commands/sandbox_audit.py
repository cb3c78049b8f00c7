"""``px sandbox audit``: known vulnerabilities in the sandbox."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.store.files import write_atomically
from px.workflow.door import permitted
from px.workflow.supply.audit import audit

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--advisories",
        action="append",
        metavar="WHAT",
        help="a file, directory or address with advisories (OSV, Debian's tracker), or debian-tracker; repeatable;"
        " default: PX_ADVISORIES, a list with spaces",
    )
    parser.add_argument(
        "--ignore", action="append", default=[], type=Path, metavar="FILE", help="an OpenVEX document; repeatable"
    )
    parser.add_argument("--fixable", action="store_true", help="only vulnerabilities that have a fixed version")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="write the result as SARIF too")
    parser.epilog = "Exit code: 0 if nothing is found, 1 if something is that is not ignored, 120 and more for errors."


def main(args: argparse.Namespace, context: Context) -> int:
    advisories = args.advisories or os.environ.get("PX_ADVISORIES", "").split()
    with permitted(context, "sandbox audit") as situation:
        found = audit(situation, advisories, args.ignore, fixable=args.fixable)
    if args.sarif:
        write_atomically(args.sarif, found.sarif())
    if not args.json:
        print("\n".join(found.lines()))
    emit(args, found.summary, found.as_json())
    return 1 if found.findings else 0
