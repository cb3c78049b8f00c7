"""``px add``: a requirement into the manifest, the lock and the env, or none of them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from px.cli.commands.sync import report
from px.cli.flags import add_target, target_of
from px.errors import PxError
from px.workflow.door import change

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="a requirement, such as httpx or 'httpx>=0.27'")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--dev", action="store_true", help="add to the dependency group `dev`")
    where.add_argument("--group", metavar="NAME", help="add to a dependency group")
    where.add_argument("--optional", metavar="EXTRA", help="add to an extra of the project")
    parser.add_argument("--package", metavar="MEMBER", help="add to this member of the workspace")
    parser.add_argument("--editable", action="store_true", help="install a local path in editable form")
    add_target(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    flags = place(args) + (["--editable"] if args.editable else [])

    def action(context: Context) -> None:
        what = f"add {', '.join(args.packages)}"
        remedy = "Correct what uv names: the spelling, or another version: px add 'NAME<VERSION'"
        context.uv_here.must(what, "add", "--no-sync", *flags, "--", *args.packages, remedy=remedy)

    try:
        ready = change(context, "add", target_of(args), action)
    except PxError as error:
        # The manifest was put back: to build it for the sandbox only, it must be added again.
        error.fields.update(sandbox=shlex.join(["px", "add", "--sandbox", *flags, *args.packages]))
        raise
    report(args, ready)
    return 0


def place(args: argparse.Namespace) -> list[str]:
    """uv's flags for the table of the manifest that is meant."""
    flags = ["--dev"] if args.dev else []
    for name in ("group", "optional", "package"):
        value = getattr(args, name)
        flags += [f"--{name}", value] if value else []
    return flags
