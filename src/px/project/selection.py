"""Which part of the lock an env gets: dependency groups and extras, with uv's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True)
class Selection:
    """Groups and extras, as flags in the order that uv gives them meaning; sorted, so that equal means equal."""

    groups: tuple[str, ...] = ()
    no_groups: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    all_groups: bool = False
    all_extras: bool = False
    default_groups: bool = True
    python: str | None = None

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Selection | None:
        """What the flags ask for; None when they say nothing, so that the last selection stays."""
        chosen = cls(
            groups=tuple(sorted(set(args.group))),
            no_groups=tuple(sorted(set(args.no_group))),
            extras=tuple(sorted(set(args.extra))),
            all_groups=args.all_groups,
            all_extras=args.all_extras,
            default_groups=not args.no_dev,
            python=args.python,
        )
        return chosen if chosen != cls() else None

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Selection:
        return cls(
            groups=tuple(raw.get("groups", ())),
            no_groups=tuple(raw.get("no_groups", ())),
            extras=tuple(raw.get("extras", ())),
            all_groups=raw.get("all_groups", False),
            all_extras=raw.get("all_extras", False),
            default_groups=raw.get("default_groups", True),
            python=raw.get("python"),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "groups": list(self.groups),
            "no_groups": list(self.no_groups),
            "extras": list(self.extras),
            "all_groups": self.all_groups,
            "all_extras": self.all_extras,
            "default_groups": self.default_groups,
            "python": self.python,
        }

    def uv_flags(self) -> list[str]:
        flags = [f for name in self.groups for f in ("--group", name)]
        flags += [f for name in self.no_groups for f in ("--no-group", name)]
        flags += [f for name in self.extras for f in ("--extra", name)]
        if self.all_groups:
            flags.append("--all-groups")
        if self.all_extras:
            flags.append("--all-extras")
        if not self.default_groups:
            flags.append("--no-default-groups")
        return flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that choose groups and extras, the same for every command that has them."""
    group = parser.add_argument_group("what to install")
    group.add_argument("--group", action="append", default=[], metavar="NAME", help="include a dependency group")
    group.add_argument("--no-group", action="append", default=[], metavar="NAME", help="leave a dependency group out")
    group.add_argument("--all-groups", action="store_true", help="include every dependency group")
    group.add_argument("--no-dev", action="store_true", help="leave out the default groups (usually `dev`)")
    group.add_argument("--extra", action="append", default=[], metavar="NAME", help="include an extra of the project")
    group.add_argument("--all-extras", action="store_true", help="include every extra")
    group.add_argument("--python", metavar="VERSION", help="the interpreter: a version (3.12) or a path")
