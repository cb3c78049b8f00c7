"""``px remove``: a requirement out of the manifest, the lock and the env, or none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.commands.add import place
from px.cli.commands.sync import add_target, report, target_of

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.project.discovery import Project

SUMMARY = "Remove packages from the project"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="the name of a direct dependency")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--dev", action="store_true", help="remove from the dependency group `dev`")
    where.add_argument("--group", metavar="NAME", help="remove from a dependency group")
    where.add_argument("--optional", metavar="EXTRA", help="remove from an extra of the project")
    parser.add_argument("--package", metavar="MEMBER", help="remove from this member of the workspace")
    add_target(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import change
    from px.project import uv

    def action(_: Project) -> None:
        what = ", ".join(args.packages)
        uv.must(
            f"remove {what}", "remove", "--no-sync", *place(args), "--", *args.packages, cwd=context.directory,
            offline=context.offline, remedy="See who needs a package that is not a direct dependency: px why NAME",
        )  # fmt: skip

    target = target_of(args)
    report(context, change(context, "remove", action, target), target)
    return 0
