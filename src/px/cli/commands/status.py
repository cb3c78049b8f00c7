"""``px status``: where the project stands and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.project.status import Status, TargetStatus, gather

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Show the project's state and what to do next"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "With -v the packages of the env are listed too."


def main(args: argparse.Namespace, context: Context) -> int:
    status = gather(context.home, context.directory, offline=context.offline, frozen=context.frozen)
    for warning in status.warnings:
        console.warn(warning)
    if context.json:
        context.emit(f"{status.name or 'no project'}: {status.host.state}", status.as_json())
        return 0
    for line in render(status):
        print(line)
    if args.verbose and status.host.profile_oid:
        for name, version in _packages(context, status.host.profile_oid):
            print(f"    {name} {version}")
    return 0


def render(status: Status) -> list[str]:
    if status.root is None:
        return [f"No project at {status.directory}", f"  state    {status.host.state}", "  next     px init"]
    title = f"{status.name} {status.version or ''}".rstrip()
    lines = [f"{console.paint(title, 'bold')}  ({status.root})"]
    if status.workspace:
        lines.append(f"  workspace of {len(status.members) + 1}: {', '.join(status.members)}")
    lines.append(f"  lock     {status.lock or 'none'}: {status.lock_state}")
    lines += _target("host", status.host) + _target("sandbox", status.sandbox)
    return lines


def _target(name: str, target: TargetStatus) -> list[str]:
    colour = "green" if target.state.endswith("Consistent") else "yellow"
    lines = [f"  {name:<8} {console.paint(target.state, colour)}: {target.reason}"]
    if target.python:
        lines.append(f"           runtime {target.python}")
    if target.env:
        chosen = ", ".join(_chosen(target)) or "default groups"
        lines += [f"           env     {target.env}", f"           with    {chosen}"]
    if not target.state.endswith("Consistent"):
        lines.append(f"           next    {target.next_action}")
    return lines


def _chosen(target: TargetStatus) -> list[str]:
    s = target.selection
    found = [f"group {g}" for g in s["groups"]] + [f"without {g}" for g in s["no_groups"]]
    found += [f"extra {e}" for e in s["extras"]]
    found += [words for key, words in (("all_groups", "all groups"), ("all_extras", "all extras")) if s[key]]
    return found + ([] if s["default_groups"] else ["no default groups"])


def _packages(context: Context, profile: str) -> list[tuple[str, str]]:
    packages = context.store.payload("profile", profile)["packages"]
    return [(str(p[0]), str(p[1])) for p in packages if isinstance(p, list)] if isinstance(packages, list) else []
