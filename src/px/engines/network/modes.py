"""Which network a sandbox gets: ``host``, ``none`` or ``allow``, as flags and the manifest's table say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.errors import PxError
from px.warm.spec import Reach

if TYPE_CHECKING:
    from collections.abc import Sequence

MODES = ("host", "none", "allow")


@dataclass(frozen=True)
class Wanted:
    """What one place says, the flags or the manifest; a mode of None leaves it to the other."""

    mode: str | None = None
    allow: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()


def parse_flags(mode: str | None, no_network: bool, allow: Sequence[str], publish: Sequence[str]) -> Wanted:
    """``--network``, ``--no-network``, ``--allow-net`` and ``--publish``, which must not contradict each other."""
    if mode is not None and mode not in MODES:
        raise _bad("--network", mode, f"the modes are {', '.join(MODES)}")
    if no_network and mode not in (None, "none"):
        raise _bad("--no-network", f"--network {mode}", "only one of them can be")
    mode = "none" if no_network else mode
    if allow and mode in ("host", "none"):
        raise _bad("--allow-net", allow[0], f"--network {mode} leaves nothing to allow")
    if allow or publish:
        from px.engines.network.rules import parse_publish, parse_rule  # most runs need no rules, and start sooner

        for text in allow:
            parse_rule(text)
        for text in publish:
            parse_publish(text)
    return Wanted("allow" if allow else mode, tuple(allow), tuple(publish))


def _bad(option: str, value: str, problem: str) -> PxError:
    example = "--network allow --allow-net api.example.org"
    return PxError("PX040", option=option, value=value, problem=problem, example=example)


def settle(flags: Wanted, table: Wanted) -> tuple[bool, Reach | None]:
    """Whether the sandbox has the host's network, and what it may reach if not.

    A flag for the mode goes before the manifest; flags that allow hosts add to the manifest's.
    """
    mode = flags.mode or table.mode or "host"
    allow = (*table.allow, *flags.allow) if mode == "allow" else ()
    reach = Reach(allow, flags.publish) if mode == "allow" or flags.publish else None
    return mode == "host", reach
