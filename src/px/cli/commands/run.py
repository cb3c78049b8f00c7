"""``px run``: become the target, in the project's env."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from px.cli.target import Places, resolve
from px.errors import PxError
from px.project import warm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

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
    become(args.target, args.arguments, host_env(context, "run"))


def host_env(context: Context, command: str) -> BuiltEnv:
    """The env to run in: at once where nothing changed, else after the full look."""
    found = warm.find(context.home, context.directory, "host")
    if found is not None:
        return found[1]
    from px.cli.workflow import ensure_env

    return ensure_env(context, command).built


def become(target: str, arguments: Sequence[str], built: BuiltEnv) -> NoReturn:
    """Replace px by the target: signals, standard input and the exit code are the target's without any relay."""
    environment = host_environment(built)
    places = Places(os.getcwd(), os.path.join(built.env, "bin"), environment["PATH"])
    command = resolve(target, list(arguments), places)
    if command is None:
        raise PxError("PX020", target=target)
    _hold(built)
    try:
        os.execve(command[0], command, environment)
    except OSError as e:
        raise PxError("PX021", target=target, reason=e.strerror or str(e)) from e


def host_environment(built: BuiltEnv) -> dict[str, str]:
    environment = dict(os.environ)
    environment.pop("PYTHONHOME", None)
    environment.update(built.variables)
    environment["VIRTUAL_ENV"] = built.env
    environment["PATH"] = os.path.join(built.env, "bin") + os.pathsep + environment.get("PATH", os.defpath)
    return environment


def _hold(built: BuiltEnv) -> None:
    from pathlib import Path

    from px.store.locks import hold_across_exec

    env = Path(built.env)
    try:
        hold_across_exec(env.parent / ".locks" / env.name)
    except OSError:
        return  # a store that cannot be written cannot be collected either
