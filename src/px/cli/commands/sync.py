"""``px sync``: make the env that the lock describes, and the lock that the manifest asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.flags import add_selection, add_target, selection_from, target_of
from px.errors import PxError
from px.project.selection import Selection
from px.warm.record import BuiltSandbox
from px.workflow import autoadd
from px.workflow.door import Wish, ensure

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context
    from px.warm.record import Built
    from px.workflow.door import Ready

_EPILOG = """\
Groups and extras are remembered: `px run` uses what was last synced. `px sync` without such flags keeps
them; `px sync --reset` goes back to the defaults. With --frozen (or CI=1) the lock must be up to date.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_target(parser)
    parser.add_argument("--force", action="store_true", help="build the env again even if it is there")
    parser.add_argument("--reset", action="store_true", help="forget the groups and extras chosen before")
    parser.add_argument(
        "--auto-add",
        action="store_true",
        help="with --sandbox: if a build asks for a capability, add it to pyproject.toml and try again",
    )
    add_selection(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    selection = selection_from(args) or (Selection() if args.reset else None)
    if args.auto_add and not args.sandbox:
        raise PxError("PX041", command="sync", flag="--auto-add")
    wish = Wish("sync", target_of(args), selection, args.force)
    report(args, autoadd.sync(context, wish) if args.auto_add else ensure(context, wish))
    return 0


def report(args: argparse.Namespace, ready: Ready[Built]) -> None:
    """Say that the env is ready, the same way after every command that ends Consistent."""
    project, built = ready.context.project, ready.built
    details: dict[str, object] = {
        "state": "WConsistent" if project.is_workspace else "Consistent",
        "target": "host",
        "changed": ready.changed,
        "env": built.directory,
        "profile_oid": built.profile_oid,
    }
    here = "" if project.root == Path.cwd() else f"{project.root}/"
    ready_as = f"env ready at {here}.px/envs/current"
    if isinstance(built, BuiltSandbox):
        ready_as = f"sandbox ready (sbx_id {built.sbx_id[:12]})"
        details |= {"target": "sandbox", "sbx_id": built.sbx_id, "base": built.base, "base_os_oid": built.base_os_oid}
        details |= {"capabilities": ",".join(built.capabilities)}
    message = f"{project.name}: {ready_as if ready.changed else 'already up to date'}"
    if not args.json:
        console.info(message)
    emit(args, message, details)
