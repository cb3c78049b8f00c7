"""Which command may run in which state, and what it may write: one table, consulted by every command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.errors import PxError
from px.project.state import State, Target

if TYPE_CHECKING:
    from px.project.state import Flags

ALL = frozenset({State.UNINITIALIZED, State.NEEDS_LOCK, State.NEEDS_ENV, State.CONSISTENT})
SOME_MANIFEST = ALL - {State.UNINITIALIZED}
LOCKED = frozenset({State.NEEDS_ENV, State.CONSISTENT})
BUILT = frozenset({State.CONSISTENT})
NEVER: frozenset[State] = frozenset()


@dataclass(frozen=True)
class Rule:
    """One row: from which states, and what it may write, in development and when frozen.

    The states are those of a project; a workspace's twins follow the same row.
    """

    dev: frozenset[State]
    frozen: frozenset[State]
    writes: str = ""
    """Any of M, L and E."""
    frozen_writes: str = ""


RULES: dict[str, Rule] = {
    "init": Rule(frozenset({State.UNINITIALIZED}), NEVER, "MLE"),
    "add": Rule(SOME_MANIFEST, NEVER, "MLE"),
    "remove": Rule(SOME_MANIFEST, NEVER, "MLE"),
    "update": Rule(SOME_MANIFEST, NEVER, "LE"),
    "sync": Rule(SOME_MANIFEST, LOCKED, "LE", "E"),
    "run": Rule(LOCKED, BUILT, "E"),
    "test": Rule(LOCKED, BUILT, "E"),
    "why": Rule(LOCKED, LOCKED),
    "status": Rule(ALL, ALL),
    "pack image": Rule(BUILT, BUILT),
    "sandbox add": Rule(SOME_MANIFEST, NEVER, "M"),
    "sandbox remove": Rule(SOME_MANIFEST, NEVER, "M"),
    "sandbox explain": Rule(LOCKED, LOCKED),
    "sandbox list": Rule(ALL, ALL),
    "sandbox ps": Rule(ALL, ALL),
    "sandbox reap": Rule(ALL, ALL),
    "pack verify": Rule(ALL, ALL),
    "base lock": Rule(ALL, ALL),
    "store verify": Rule(ALL, ALL),
    "store gc": Rule(ALL, ALL),
    "doctor": Rule(ALL, ALL),
    "completions": Rule(ALL, ALL),
}


@dataclass(frozen=True)
class Permit:
    """What a command was allowed to do, once it was."""

    state: State
    writes: str

    @property
    def must_lock(self) -> bool:
        return self.state.plain is State.NEEDS_LOCK

    @property
    def must_build(self) -> bool:
        return self.state.plain is not State.CONSISTENT


def check_frozen(command: str, frozen_by: str | None) -> None:
    """Refuse a command that would change the project while it is frozen, before anything is looked at."""
    if frozen_by is not None and RULES[command].frozen is NEVER:
        raise PxError("PX011", command=command, frozen_by=frozen_by)


def permit(command: str, flags: Flags, *, frozen_by: str | None, target: Target = Target.HOST) -> Permit:
    """Return what ``command`` may write from this state, or raise with the command that leads on."""
    check_frozen(command, frozen_by)
    rule = RULES[command]
    state = flags.state
    if state.plain not in (rule.frozen if frozen_by else rule.dev):
        raise PxError(
            "PX010",
            command=command + (" --sandbox" if target is Target.SANDBOX and command in ("run", "test", "sync") else ""),
            state=state.value,
            reason=flags.reason,
            remedy=remedy(state, target=target, frozen=frozen_by is not None),
        )
    return Permit(state, rule.frozen_writes if frozen_by else rule.writes)


def remedy(state: State, *, target: Target = Target.HOST, frozen: bool = False) -> str:
    """The next command from a state, ready to be pasted."""
    sandbox = " --sandbox" if target is Target.SANDBOX else ""
    if state.plain is State.UNINITIALIZED:
        return "Start a project here: px init"
    if state.plain is State.CONSISTENT:
        return f"Run something: px run{sandbox} python"
    if state.plain is State.NEEDS_LOCK and frozen:
        return f"On a development machine: px sync{sandbox}, then commit the lock."
    return f"Bring it up to date: px sync{sandbox}" + (" --frozen" if frozen else "")
