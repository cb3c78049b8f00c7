"""The M/L/E state machine: which files exist and agree, the state that follows, and what commands may do from it.

M is the manifest, L the lock, E the env; a workspace has WM, WL and WE and the same states with a W.
Each target (host, sandbox) has an E of its own, so a project can be Consistent for one and NeedsEnv for
the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from px.errors import PxError


class Target(Enum):
    """Where an env runs; each has its own profile from the one lock."""

    HOST = "host"
    SANDBOX = "sandbox"


class State(Enum):
    """What a project is ready for."""

    UNINITIALIZED = "Uninitialized"
    NEEDS_LOCK = "NeedsLock"
    NEEDS_ENV = "NeedsEnv"
    CONSISTENT = "Consistent"
    W_UNINITIALIZED = "WUninitialized"
    W_NEEDS_LOCK = "WNeedsLock"
    W_NEEDS_ENV = "WNeedsEnv"
    W_CONSISTENT = "WConsistent"

    @property
    def is_workspace(self) -> bool:
        return self.value.startswith("W")

    @property
    def plain(self) -> State:
        """The same state without the W."""
        return State(self.value[1:]) if self.is_workspace else self

    @property
    def words(self) -> str:
        """As people read it; the names are for ``--json`` and the documentation."""
        return _WORDS[self.plain.value]

    @property
    def sentence(self) -> str:
        """What is to be done before a command can run that needs more."""
        if self.plain is State.UNINITIALIZED:
            return "there is no project"
        return f"the {'workspace' if self.is_workspace else 'project'} {self.words}"


_WORDS = {
    "Uninitialized": "no project",
    "NeedsLock": "needs locking",
    "NeedsEnv": "needs building",
    "Consistent": "up to date",
}


@dataclass(frozen=True)
class Flags:
    """What was found on disk, for one target."""

    workspace: bool
    manifest_exists: bool
    lock_exists: bool
    lock_matches: bool
    """L was made from M as it is now."""
    env_exists: bool
    env_matches: bool
    """E was made from L as it is now, with the selection that is asked for."""
    stale: str = ""
    """What changed since E was made, as a sentence."""
    pylock: bool = False
    """Whether L is a ``pylock.toml``, which px reads and never writes."""

    @property
    def manifest_clean(self) -> bool:
        return self.manifest_exists and self.lock_exists and self.lock_matches

    @property
    def env_clean(self) -> bool:
        return self.manifest_clean and self.env_exists and self.env_matches

    @property
    def state(self) -> State:
        if not self.manifest_exists:
            plain = State.UNINITIALIZED
        elif not self.manifest_clean:
            plain = State.NEEDS_LOCK
        elif not self.env_clean:
            plain = State.NEEDS_ENV
        else:
            plain = State.CONSISTENT
        return State("W" + plain.value) if self.workspace else plain

    @property
    def reason(self) -> str:
        """One sentence that says why the state is what it is."""
        if not self.manifest_exists:
            return "There is no pyproject.toml."
        if not self.lock_exists:
            return "There is no lock."
        if not self.lock_matches:
            return "The manifest changed after it was locked."
        if not self.env_exists:
            return self.stale or "The env has not been built."
        if not self.env_matches:
            return self.stale or "The env was built from something else."
        return "The manifest, the lock and the env agree."


# --- which command may run in which state ----------------------------------------------------------------------

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
    "sandbox diff": Rule(LOCKED, LOCKED),
    "sandbox pin": Rule(LOCKED, NEVER, "M"),
    "sandbox update": Rule(SOME_MANIFEST, NEVER),
    "sandbox audit": Rule(LOCKED, LOCKED),
    "sandbox outdated": Rule(SOME_MANIFEST, SOME_MANIFEST),
    "bundle export": Rule(LOCKED, LOCKED),
    "bundle import": Rule(ALL, ALL),
    "cache push": Rule(LOCKED, LOCKED),
    "sandbox list": Rule(ALL, ALL),
    "sandbox ps": Rule(ALL, ALL),
    "sandbox reap": Rule(ALL, ALL),
    "sandbox templates": Rule(ALL, ALL),
    "pack verify": Rule(ALL, ALL),
    "base lock": Rule(ALL, ALL),
    "base check": Rule(ALL, ALL),
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
            sentence=state.sentence,
            state=state.plain.value,
            reason=flags.reason,
            remedy=remedy(state, target=target, frozen=frozen_by is not None, pylock=flags.pylock),
        )
    return Permit(state, rule.frozen_writes if frozen_by else rule.writes)


def remedy(state: State, *, target: Target = Target.HOST, frozen: bool = False, pylock: bool = False) -> str:
    """The next command from a state, ready to be pasted."""
    sandbox = " --sandbox" if target is Target.SANDBOX else ""
    if state.plain is State.UNINITIALIZED:
        return "Start a project here: px init"
    if state.plain is State.CONSISTENT:
        return f"Run something: px run{sandbox} python"
    if state.plain is State.NEEDS_LOCK and pylock:
        return f"Lock again with the tool that wrote pylock.toml, or with uv: rm pylock.toml && px sync{sandbox}"
    if state.plain is State.NEEDS_LOCK and frozen:
        return f"On a development machine: px sync{sandbox}, then commit the lock."
    return f"Bring it up to date: px sync{sandbox}" + (" --frozen" if frozen else "")
