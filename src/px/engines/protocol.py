"""What an engine is: something that can run a :class:`px.warm.spec.RunSpec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from px.errors import PxError

if TYPE_CHECKING:
    from px.warm.spec import RunSpec
    from px.warm.streams import Sink


@dataclass(frozen=True)
class Problem:
    """Why an engine does not work here, and what would change that."""

    reason: str
    fix: tuple[str, ...]


def failed_to_start(engine: str) -> PxError:
    return PxError("PX906", engine=engine, problem="it could not set the sandbox up; its own message is above")


class Engine(Protocol):
    """One of bubblewrap, docker and podman."""

    name: str

    def problem(self) -> Problem | None:
        """Why this engine does not work on this machine; None when it does.  Asked once per process."""

    def run(self, spec: RunSpec, *, stdin: int | None = None, stdout: Sink = None, stderr: Sink = None) -> int:
        """Run to the end; the target's exit code, or 128 + n when signal n ended it.

        A stream is a descriptor, or a function that gets each piece as it comes, or None for px's own, or a Tail that
        keeps the end of what goes to px's own.
        """
