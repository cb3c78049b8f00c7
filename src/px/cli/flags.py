"""Flags that several commands have, and what they become."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.platforms import architectures_named
from px.project.selection import Selection
from px.project.state import Target

if TYPE_CHECKING:
    import argparse


def add_target(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that ends with an env: which one."""
    parser.add_argument("--sandbox", action="store_true", help="build the sandbox's env instead of this machine's")


def target_of(args: argparse.Namespace) -> Target:
    return Target.SANDBOX if args.sandbox else Target.HOST


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The flags that choose groups and extras, the same for every command that has them."""
    group = parser.add_argument_group("what to install")
    group.add_argument("--group", action="append", default=[], metavar="NAME", help="include a dependency group")
    group.add_argument("--no-group", action="append", default=[], metavar="NAME", help="leave a dependency group out")
    group.add_argument("--all-groups", action="store_true", help="include every dependency group")
    group.add_argument("--no-dev", action="store_true", help="leave out the default groups (usually `dev`)")
    group.add_argument("--extra", action="append", default=[], metavar="NAME", help="include an extra of the project")
    group.add_argument("--all-extras", action="store_true", help="include every extra")
    group.add_argument("--python", metavar="VERSION", help="the interpreter: a version (3.12) or a path")


def selection_from(args: argparse.Namespace) -> Selection | None:
    """What the flags ask for; None when they say nothing, so that the last selection stays."""
    chosen = Selection(
        groups=tuple(sorted(set(args.group))),
        no_groups=tuple(sorted(set(args.no_group))),
        extras=tuple(sorted(set(args.extra))),
        all_groups=args.all_groups,
        all_extras=args.all_extras,
        default_groups=not args.no_dev,
        python=args.python,
    )
    return chosen if chosen != Selection() else None


def architectures(text: str) -> list[str]:
    """The architectures that ``--platform`` asks for, each once; this machine's own if it says nothing."""
    return architectures_named(text, "--platform ")
