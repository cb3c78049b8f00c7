"""``px remove``: a requirement out of the manifest, the lock and the env, or none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.commands.add import place
from px.cli.commands.sync import report
from px.cli.flags import add_target, target_of
from px.workflow.door import change

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="the name of a direct dependency")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--dev", action="store_true", help="remove from the dependency group `dev`")
    where.add_argument("--group", metavar="NAME", help="remove from a dependency group")
    where.add_argument("--optional", metavar="EXTRA", help="remove from an extra of the project")
    parser.add_argument("--package", metavar="MEMBER", help="remove from this member of the workspace")
    add_target(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    def action(context: Context) -> None:
        what = f"remove {', '.join(args.packages)}"
        remedy = "See who needs a package that is not a direct dependency: px why NAME"
        context.uv_here.must(what, "remove", "--no-sync", *place(args), "--", *args.packages, remedy=remedy)

    report(args, change(context, "remove", target_of(args), action))
    return 0
