"""The M/L/E state machine: which files exist and agree, and the state that follows.

M is the manifest, L the lock, E the env; a workspace has WM, WL and WE and the same states with a W.
Each target (host, sandbox) has an E of its own, so a project can be Consistent for one and NeedsEnv for
the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
            return "The env has not been built."
        if not self.env_matches:
            return "The env was built from another lock or selection, or by another px."
        return "The manifest, the lock and the env agree."
