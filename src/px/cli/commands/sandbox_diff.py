"""``px sandbox diff``: what one sandbox has that another does not, and what that weighs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.cli.page import add_page, deliver, wants_page
from px.sandbox.report.diff import difference, render, total
from px.sandbox.report.page.diff import diff_page
from px.store.locks import collection_off
from px.workflow.compare.sides import HERE, find_side, understand

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A and B are commits (HEAD~1, a branch, a tag), images (an archive, an OCI layout, a name), the sbx_id of a\n"
        "sandbox that was built here, or the project as it is now (.). What could mean two of them takes a prefix:\n"
        "commit:NAME, image:NAME, sbx:ID. A commit's lock is taken as it was committed, and its sandbox is what this\n"
        "px makes of it."
    )
    parser.add_argument("before", metavar="A", help="where from")
    parser.add_argument(
        "after", metavar="B", nargs="?", default=HERE, help="where to (default: the project as it is now)"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if the two differ")
    parser.add_argument("--insecure", action="store_true", help="allow a registry without TLS")
    add_page(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    # Both are understood before the first is looked into, which may take minutes.
    wanted = [understand(context, text) for text in (args.before, args.after)]
    with collection_off(context.home):
        before, after = (find_side(context, one, insecure=args.insecure) for one in wanted)
    found = difference(before, after)
    file = deliver(args, lambda: diff_page(found)) if wants_page(args) else None
    if not args.json:
        print(render(found), end="")
    same = "the same sandbox" if found.is_same else total(found)
    emit(args, f"{args.before} and {args.after}: {same}", found.as_json() | ({"html": file} if file else {}))
    return 1 if args.exit_code and not found.is_same else 0
