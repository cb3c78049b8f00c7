"""``px status``: where the project stands and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.project.state import State
from px.workflow.status import Status, TargetStatus, gather

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if the lock or the pins are older than the manifest"
    )
    parser.epilog = "With -v the groups and extras that there are, and the packages of the env, are listed too."


def main(args: argparse.Namespace, context: Context) -> int:
    status = gather(context)
    for warning in status.warnings:
        console.warn(warning)
    if args.json:
        emit(args, f"{status.name or 'no project'}: {status.host.state}", status.as_json())
        return _code(args, status)
    for line in render(status, everything=bool(args.verbose)):
        print(line)
    built = status.host.profile_oid or status.sandbox.profile_oid
    if args.verbose and built:
        for name, version in _packages(context, built):
            print(f"    {name} {version}")
    return _code(args, status)


def _code(args: argparse.Namespace, status: Status) -> int:
    """For hooks and CI: what is committed must agree, whether an env is built or not."""
    if not args.check:
        return 0
    for problem in status.problems:
        console.warn(problem)
    return 1 if status.problems else 0


def render(status: Status, *, everything: bool = False) -> list[str]:
    if status.root is None:
        next_action = f"  next     {status.host.next_action}"
        return [f"No project at {status.directory}", next_action]
    title = f"{status.name} {status.version or ''}".rstrip()
    lines = [f"{console.paint(title, 'bold', 'stdout')}  ({status.root})"]
    if status.workspace:
        lines.append(f"  members  {', '.join(status.members) or 'none'}")
    lines.append(f"  lock     {f'{status.lock}: {status.lock_state}' if status.lock else 'none'}")
    if everything:
        lines.append(f"  groups   {', '.join(status.groups) or 'none'}")
        lines.append(f"  extras   {', '.join(status.extras) or 'none'}")
    lines += _target("host", status.host) + _target("sandbox", status.sandbox)
    return lines


def _target(name: str, target: TargetStatus) -> list[str]:
    state = State(target.state)
    is_ready = state.plain is State.CONSISTENT
    lines = [f"  {name:<8} {console.paint(state.words, 'green' if is_ready else 'yellow', 'stdout')}: {target.reason}"]
    if target.python:
        lines.append(f"           runtime {target.python}")
    if target.env:
        lines += [f"           env     {target.env}", f"           with    {', '.join(_chosen(target))}"]
    if not is_ready:
        lines.append(f"           next    {target.next_action}")
    return lines


def _chosen(target: TargetStatus) -> list[str]:
    s = target.selection
    found = ["all groups" if s["all_groups"] else "default groups" if s["default_groups"] else "no default groups"]
    found += [f"group {g}" for g in s["groups"]] + [f"not group {g}" for g in s["no_groups"]]
    return found + (["all extras"] if s["all_extras"] else [f"extra {e}" for e in s["extras"]])


def _packages(context: Context, profile: str) -> list[tuple[str, str]]:
    packages = context.store.payload("profile", profile)["packages"]
    return [(str(p[0]), str(p[1])) for p in packages if isinstance(p, list)] if isinstance(packages, list) else []
