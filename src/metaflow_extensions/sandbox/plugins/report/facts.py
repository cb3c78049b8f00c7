"""What a task notes about its sandbox in Metaflow's metadata: the decorators write it, the cards read it.

Whoever can write to the metadata can write these fields, so what is read is bounded and checked.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins import settings

if TYPE_CHECKING:
    from collections.abc import Mapping

BACKEND = "sandbox-backend"
SANDBOX_ID = "sandbox-id"
SBX_ID = "sandbox-image"
IMAGE = "sandbox-image-name"
LIMITS = "sandbox-limits"
TIMES = ("sandbox-create-seconds", "sandbox-start-seconds", "sandbox-run-seconds")
"""How long it took to make the sandbox, from then to the first line of the step, and to its last."""
CURRENT = "_sandbox_facts"
"""Where Metaflow's ``current`` has the facts while the task runs."""
LIMIT_NAMES = ("cpu", "memory", "gpu", "disk", "timeout", "network")
# Longer than any id, name or number that px writes.
_LONGEST = 200
_LONGEST_LIMITS = 2000
_MOST_SECONDS = 1e12


def register(metadata: Any, task: tuple[str, str, str], facts: Mapping[str, str], attempt: int) -> None:
    """Note facts about a task (run, step, task) in the metadata of its attempt."""
    from metaflow.metadata_provider import MetaDatum

    tags = [f"attempt_id:{attempt}"]
    metadata.register_metadata(*task, [MetaDatum(field=k, value=v, type=k, tags=tags) for k, v in facts.items() if v])


def at_start(environ: Mapping[str, str], attributes: Mapping[str, Any], time_limit: int) -> dict[str, str]:
    """What a task knows about its sandbox before its first line."""
    limits = {key: str(attributes[key]) for key in LIMIT_NAMES if attributes.get(key) not in (None, "")}
    limits["timeout"] = str(time_limit)
    found = {
        BACKEND: environ.get(settings.BACKEND, ""),
        SANDBOX_ID: environ.get(settings.SANDBOX_ID, ""),
        SBX_ID: environ.get(settings.IMAGE_ID, ""),
        IMAGE: str(attributes.get("image") or ""),
        LIMITS: json.dumps(limits),
        TIMES[0]: environ.get(settings.CREATE_TOOK, ""),
    }
    started = seconds(environ.get(settings.STARTED_AT))
    if started is not None:
        found[TIMES[1]] = as_seconds(time.time() - started)
    return found


def at_end(began: float) -> dict[str, str]:
    """What it knows after its last line; ``began`` is by the monotonic clock."""
    return {TIMES[2]: as_seconds(time.monotonic() - began)}


def as_seconds(value: float) -> str:
    return f"{max(value, 0.0):.3f}"  # clocks can be set back


def seconds(value: object) -> float | None:
    """A time that somebody has noted; None if it is none."""
    try:
        found = float(str(value)[:_LONGEST])
    except ValueError:
        return None
    return found if 0 <= found <= _MOST_SECONDS else None


@dataclass(frozen=True)
class TaskFacts:
    """What is known about one task."""

    name: str
    """Step and number."""
    backend: str = ""
    sandbox_id: str = ""
    sbx_id: str = ""
    image: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    times: tuple[float | None, ...] = (None, None, None)

    @classmethod
    def read(cls, name: str, metadata: Mapping[str, object]) -> TaskFacts:
        def text(key: str) -> str:
            return str(metadata.get(key) or "")[:_LONGEST]

        return cls(
            name=name[:_LONGEST],
            backend=text(BACKEND),
            sandbox_id=text(SANDBOX_ID),
            sbx_id=text(SBX_ID),
            image=text(IMAGE),
            limits=_limits(metadata.get(LIMITS)),
            times=tuple(seconds(metadata.get(key)) for key in TIMES),
        )

    @property
    def in_sandbox(self) -> bool:
        return bool(self.backend or self.sbx_id)

    @property
    def total(self) -> float:
        return sum(value or 0.0 for value in self.times)


def _limits(noted: object) -> dict[str, str]:
    text = str(noted or "")
    try:
        found = json.loads(text) if len(text) <= _LONGEST_LIMITS else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: str(found[key])[:_LONGEST] for key in LIMIT_NAMES if found.get(key)}
