"""What a card shows: the facts of its own task, the packages around it, and the tasks of other steps.

A foreach may have 100,000 tasks.  Of so many, a sample is read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.report import facts
from metaflow_extensions.sandbox.plugins.report.facts import TaskFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_READ = 1000
"""Tasks whose metadata is read: each is a request to the service, or a dozen files."""
READ_SECONDS = 15.0
"""A card has 45 seconds by default, and Python must start in them."""
MOST_PACKAGES = 400
PHASES = ("Creating", "Starting", "Running")
_LONGEST = 100


@dataclass(frozen=True)
class Packages:
    """The packages that a task can import; of very many, the first ones."""

    total: int
    shown: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Whole:
    """The tasks of whole steps."""

    steps: tuple[str, ...]
    total: int
    read: tuple[TaskFacts, ...]


def own_facts(task: Any) -> TaskFacts:
    return TaskFacts.read(f"{task.parent.id}/{task.id}", task.metadata_dict)


def facts_so_far() -> TaskFacts:
    """What this process, a task, knows about its sandbox without asking the metadata."""
    from metaflow import current

    found = getattr(current, facts.CURRENT, None)
    name = f"{current.step_name}/{current.task_id}"
    return TaskFacts.read(name, found if isinstance(found, dict) else {})


def packages() -> Packages:
    """What is installed where this runs: a card is made where its task ran."""
    from importlib import metadata

    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        # The first on the path is the one that is imported.
        if name and name.lower() not in found:
            found[name.lower()] = (str(name)[:_LONGEST], str(distribution.version)[:_LONGEST])
    return Packages(len(found), tuple(found[key] for key in sorted(found)[:MOST_PACKAGES]))


def shown_steps(own: str, options: Any, graph: Any) -> tuple[str, ...]:
    """The steps whose tasks the card of this step shows: those that the options name, else those that it joins."""
    graph = graph if isinstance(graph, dict) else {}
    named = options.get("steps") if isinstance(options, dict) else None
    if isinstance(named, list):
        return tuple(name for name in named if name in graph)
    splits = [node["next"] for node in graph.values() if node.get("matching_join") == own]
    found: dict[str, None] = {}
    waiting = [name for following in splits for name in following]
    while waiting:
        name = waiting.pop(0)
        if name != own and name not in found:
            found[name] = None
            waiting += graph[name]["next"]
    return tuple(found)


def whole(task: Any, steps: Sequence[str]) -> Whole:
    """The tasks of these steps in the run of this task, oldest first."""
    found = [(name, one) for name in steps for one in _tasks(task.parent.parent, name)]
    read, end = [], time.monotonic() + READ_SECONDS
    for name, one in sample(found, MOST_READ):
        if time.monotonic() > end:
            break
        read.append(TaskFacts.read(f"{name}/{one.id}", one.metadata_dict))
    return Whole(tuple(steps), len(found), tuple(read))


def _tasks(run: Any, step: str) -> list[Any]:
    try:
        return list(run[step])[::-1]
    except KeyError:  # its branch was not taken, or its records have not come into this sandbox
        return []


def sample(items: Sequence[Any], most: int) -> Iterable[Any]:
    """At most so many of them, evenly spread."""
    if len(items) <= most:
        return items
    return [items[i * len(items) // most] for i in range(most)]


def rows(found: TaskFacts) -> list[tuple[str, str]]:
    """The facts in words."""
    if not found.in_sandbox:
        return [("Backend", "none: this task ran without a sandbox")]
    limits = [f"{name} {_limit(name, value)}" for name, value in found.limits.items()]
    said = [
        ("Backend", found.backend),
        ("Sandbox", found.sandbox_id),
        ("Image", found.image),
        ("sbx_id", found.sbx_id),
        ("Limits", ", ".join(limits)),
        *(
            (f"{what} took", duration(value))
            for what, value in zip(PHASES, found.times, strict=True)
            if value is not None
        ),
    ]
    return [(name, value) for name, value in said if value]


def _limit(name: str, value: str) -> str:
    if name in ("memory", "disk"):
        return f"{value} MB"
    number = facts.seconds(value)
    return duration(number) if name == "timeout" and number is not None else value


def duration(value: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.1f} s" if value >= 10 else f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
