"""Which part of the lock an env gets: dependency groups and extras, with uv's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
