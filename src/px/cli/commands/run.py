"""``px run``: become the target, in the project's env."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.cli.host import become

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.project.record import BuiltEnv

SUMMARY = "Run a file, a script or python in the env"
_EPILOG = """\
The target is, in this order: a file; python, python3 or python3.N; a console script of the env; a program
on the env's PATH. Flags of px come before it; everything after it belongs to the target.

  px run python -c 'import sys; print(sys.prefix)'
  px run scripts/report.py --all
  px run pytest -x

The exit code is the target's own; 128 + n when signal n ended it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    import argparse

    parser.epilog = _EPILOG
    parser.add_argument("target", help="what to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the target, passed on untouched")


def main(args: argparse.Namespace, context: Context) -> int:
    built = host_env(context, "run")
    become(args.target, args.arguments, built.env, built.variables)


def host_env(context: Context, command: str) -> BuiltEnv:
    """The env to run in, built first where the command may."""
    from px.cli.workflow import ensure_env

    return ensure_env(context, command).built
