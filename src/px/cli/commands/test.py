"""``px test``: the project's tests in the project's env."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from px.cli.commands.run import add_sandbox, check_sandbox, first_flag, run_options
from px.errors import PxError
from px.warm.spec import ENV
from px.warm.target import InSandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.project.context import Context
    from px.warm.record import BuiltSandbox

_EPILOG = """\
Runs pytest, or the command in pyproject.toml if there is one:

  [tool.px]
  test = ["python", "-m", "unittest", "discover"]

What px does not know goes to the test runner. Put -- before flags of the test runner that px has too:

  px test --sandbox -x -k name
  px test --sandbox -- -q
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_sandbox(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the test runner")


def arrange(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """px's own flags first, then everything else: up to the first argument that is no flag, either may come first."""
    known = {flag: action for action in parser._actions for flag in action.option_strings}
    own: list[str] = []
    runners: list[str] = []
    words = list(argv)
    while words and words[0] != "--" and words[0].startswith("-"):
        word = first_flag(words)
        action = known.get(word.partition("=")[0] if word.startswith("--") else word)
        if action is None:
            runners.append(word)
            continue
        own.append(word)
        if action.nargs is None and "=" not in word and words:
            own.append(words.pop(0))
    return [*own, "--", *runners, *(words[1:] if words[:1] == ["--"] else words)]


def main(args: argparse.Namespace, context: Context) -> int:
    from px.workflow.door import ensure_host
    from px.workflow.run import become, run_in_sandbox

    check_sandbox(args, "test")
    arguments = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments

    def command(has_pytest: bool) -> tuple[str, list[str]]:
        add = f"px add {'--sandbox ' if args.sandbox else ''}--dev pytest"
        first, *rest = test_command(context, has_pytest, add)
        return first, [*rest, *arguments]

    def in_sandbox(built: BuiltSandbox) -> tuple[str, list[str]]:
        return command(InSandbox(built).has(f"{ENV}/bin/pytest"))

    if not args.sandbox:
        built = ensure_host(context, "test").built
        become(*command(os.path.exists(os.path.join(built.directory, "bin", "pytest"))), built)
    return run_in_sandbox(context, "test", run_options(args), in_sandbox)


def test_command(context: Context, has_pytest: bool, add: str) -> tuple[str, ...]:
    """The project's own test command, else pytest."""
    project = context.project
    configured = project.here.test_command or project.manifest.test_command
    if configured:
        return configured
    if not has_pytest:
        raise PxError("PX022", add=add)
    return ("python", "-m", "pytest")
