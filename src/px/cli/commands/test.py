"""``px test``: the project's tests in the project's env."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px.cli import sandboxed
from px.cli.commands.run import host_env, run_in_sandbox
from px.cli.host import become
from px.errors import PxError

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Run the project's tests in the env"
_EPILOG = """\
Runs pytest, or the command in pyproject.toml if there is one:

  [tool.px]
  test = ["python", "-m", "unittest", "discover"]

Flags of the test runner that px has too go behind --:  px test --sandbox -- -q
"""


def configure(parser: argparse.ArgumentParser) -> None:
    import argparse

    parser.epilog = _EPILOG
    sandboxed.configure(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the test runner")


def main(args: argparse.Namespace, context: Context) -> int:
    if args.arguments[:1] == ["--"]:
        args.arguments = args.arguments[1:]
    sandboxed.check_flags(args, "test")
    if not args.sandbox:
        built = host_env(context, "test")
        command = test_command(context, os.path.exists(os.path.join(built.env, "bin", "pytest")))
        become(command[0], [*command[1:], *args.arguments], built.env, built.variables)
    return run_in_sandbox(args, context, "test", lambda sandbox: _in_sandbox(args, context, sandbox))


def _in_sandbox(args: argparse.Namespace, context: Context, sandbox: sandboxed.Sandbox) -> tuple[str, list[str]]:
    command = test_command(context, sandboxed.in_image(sandbox, f"{sandboxed.BINARIES}/pytest"))
    return command[0], [*command[1:], *args.arguments]


def test_command(context: Context, has_pytest: bool) -> tuple[str, ...]:
    """The project's own test command, else pytest."""
    from px.project.discovery import discover

    project = discover(context.directory)
    configured = project.here.test_command or project.manifest.test_command
    if configured:
        return configured
    if not has_pytest:
        raise PxError("PX022")
    return ("python", "-m", "pytest")
