"""The programs that run a target inside a sandbox, behind one Protocol (:class:`px.engines.protocol.Engine`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError

if TYPE_CHECKING:
    from px.engines.protocol import Engine, Problem
    from px.warm.spec import AnyPath

NAMES = ("bubblewrap", "docker", "podman")
"""In the order in which they are tried."""


def engine(name: str, home: AnyPath) -> Engine:
    """The engine of that name, whether it works here or not; what it finds out is kept in px's home."""
    if name == "bubblewrap":
        from px.engines.bubblewrap import Bubblewrap

        return Bubblewrap(home)
    if name == "docker":
        from px.engines.docker import Docker

        return Docker()
    if name == "podman":
        from px.engines.podman import Podman

        return Podman()
    raise PxError("PX908", engine=name, known=", ".join(NAMES))


def choose(name: str | None, home: AnyPath) -> Engine:
    """The engine that was asked for (``--engine``, else ``PX_ENGINE``), else the first that works here."""
    asked = name or os.environ.get("PX_ENGINE")
    problems: list[tuple[str, Problem]] = []
    for candidate in (asked,) if asked else NAMES:
        found = engine(candidate, home)
        problem = found.problem()
        if problem is None:
            for other, why in problems:
                console.warn(f"using {candidate}, because {other} does not work here: {why.reason}")
            return found
        problems.append((candidate, problem))
    reasons = [f"{candidate}: {problem.reason}" for candidate, problem in problems]
    fixes = [f"{candidate}: {fix}" for candidate, problem in problems for fix in problem.fix]
    raise PxError("PX905", why=reasons, fix=fixes)
