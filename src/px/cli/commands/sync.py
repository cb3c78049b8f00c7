"""``px sync``: make the env that the lock describes, and the lock that the manifest asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.project.selection import Selection, add_arguments
from px.project.state import Target

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.cli.workflow import Ready

SUMMARY = "Build the env that the lock describes"
_EPILOG = """\
Groups and extras are remembered: `px run` uses what was last synced. `px sync` without such flags keeps
them; `px sync --reset` goes back to the defaults. With --frozen (or CI=1) the lock must be up to date.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_target(parser)
    parser.add_argument("--force", action="store_true", help="build the env again even if it is there")
    parser.add_argument("--reset", action="store_true", help="forget the groups and extras chosen before")
    add_arguments(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import ensure_env

    selection = Selection.from_arguments(args) or (Selection() if args.reset else None)
    target = target_of(args)
    ready = ensure_env(context, "sync", target, selection=selection, force=args.force)
    report(context, ready, target)
    return 0


def add_target(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that ends with an env: which one."""
    parser.add_argument("--sandbox", action="store_true", help="build the sandbox's env instead of this machine's")


def target_of(args: argparse.Namespace) -> Target:
    return Target.SANDBOX if args.sandbox else Target.HOST


def report(context: Context, ready: Ready, target: Target = Target.HOST) -> None:
    """Say that the env is ready, the same way after every command that ends Consistent."""
    ready_as = "env ready at .px/envs/current"
    if target is Target.SANDBOX:
        ready_as = f"sandbox ready (sbx_id {ready.built.details['sbx_id'][:12]})"
    message = f"{ready.project.name}: {ready_as if ready.changed else 'already up to date'}"
    if not context.json:
        console.info(message)
    context.emit(
        message,
        {
            "state": "WConsistent" if ready.project.is_workspace else "Consistent",
            "target": target.value,
            "changed": ready.changed,
            "env": ready.built.env,
            "profile_oid": ready.built.profile,
            **{k: v for k, v in ready.built.details.items() if k in ("sbx_id", "base", "base_os_oid", "capabilities")},
        },
    )
