"""``px test``: the project's tests in the project's env."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px.cli.commands.run import host_env
from px.cli.host import become
from px.errors import PxError

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.project.record import BuiltEnv

SUMMARY = "Run the project's tests in the env"
_EPILOG = """\
Runs pytest, or the command in pyproject.toml if there is one:

  [tool.px]
  test = ["python", "-m", "unittest", "discover"]
"""


def configure(parser: argparse.ArgumentParser) -> None:
    import argparse

    parser.epilog = _EPILOG
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the test runner")


def main(args: argparse.Namespace, context: Context) -> int:
    built = host_env(context, "test")
    command = test_command(context, built)
    become(command[0], [*command[1:], *args.arguments], built.env, built.variables)


def test_command(context: Context, built: BuiltEnv) -> tuple[str, ...]:
    from px.project.discovery import discover

    project = discover(context.directory)
    configured = project.here.test_command or project.manifest.test_command
    if configured:
        return configured
    if not os.path.exists(os.path.join(built.env, "bin", "pytest")):
        raise PxError("PX022")
    return ("python", "-m", "pytest")
