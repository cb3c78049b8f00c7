"""``px test``: the project's tests in the project's env."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from px.cli.commands.run import add_sandbox, check_sandbox, run_options
from px.errors import PxError
from px.warm.spec import ENV
from px.warm.target import InSandbox

if TYPE_CHECKING:
    from px.project.context import Context
    from px.warm.record import BuiltSandbox

_EPILOG = """\
Runs pytest, or the command in pyproject.toml if there is one:

  [tool.px]
  test = ["python", "-m", "unittest", "discover"]

Put -- before flags of the test runner that px has too:  px test --sandbox -- -q
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_sandbox(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the test runner")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.workflow.door import ensure_host
    from px.workflow.run import become, run_in_sandbox

    check_sandbox(args, "test")
    arguments = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments

    def command(has_pytest: bool) -> tuple[str, list[str]]:
        first, *rest = test_command(context, has_pytest)
        return first, [*rest, *arguments]

    def in_sandbox(built: BuiltSandbox) -> tuple[str, list[str]]:
        return command(InSandbox(built).has(f"{ENV}/bin/pytest"))

    if not args.sandbox:
        built = ensure_host(context, "test").built
        become(*command(os.path.exists(os.path.join(built.directory, "bin", "pytest"))), built)
    return run_in_sandbox(context, "test", run_options(args), in_sandbox)


def test_command(context: Context, has_pytest: bool) -> tuple[str, ...]:
    """The project's own test command, else pytest."""
    project = context.project
    configured = project.here.test_command or project.manifest.test_command
    if configured:
        return configured
    if not has_pytest:
        raise PxError("PX022")
    return ("python", "-m", "pytest")
