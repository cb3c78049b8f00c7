"""What a failed build's log says, as an error with what to do."""

from __future__ import annotations

import errno
import os
import re

from px import console
from px.errors import PxError
from px.sandbox.needs import patterns
from px.warm.record import home_root

_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_COMPILER = re.compile(r":\d+: (fatal )?error: |\berror(\[\w+\])?: |undefined reference|cannot find -l")


def full_disk(said: str) -> PxError | None:
    """That there is no space left, if a program said so: then nothing else is wrong."""
    return PxError("PX810", path=home_root()) if any(text in said for text in _FULL) else None


def _full_memory(label: str, log: str) -> PxError | None:
    """That the sandbox's own /tmp is full.  It is in memory, and space on the disk would not help."""
    said = [line.strip() for line in log.splitlines() if "/tmp/" in line and any(text in line for text in _FULL)]  # noqa: S108
    if not said:
        return None
    problem = f"{label} could not be built: its /tmp is full, which is in memory"
    fix = ["Build it on a machine with more memory: /tmp may take half of it. A shared cache carries it from there."]
    return PxError("PX903", problem=problem, why=said[:1], fix=fix, whole_fix=True)


def build_failure(
    label: str,
    log: str,
    base: str,
    have: frozenset[str] = frozenset(),
    *,
    by_choice: bool = False,
    own: bool = False,
) -> PxError:
    """What a failed build's log says is missing, as an error with the command that brings it.

    A capability that the build had is no remedy: where the headers are there, they are too old or too new.
    ``by_choice``: the project wants it built, though it may have a wheel.  ``own``: it is the user's own directory.
    """
    if full := _full_memory(label, log) or full_disk(log):
        return full
    found = [s for s in patterns.match(log, base) if s.capability not in have]
    if not found:
        return _without_remedy(label, log, base, by_choice=by_choice, own=own)
    return patterns.missing_error(found, [f"Building {label} failed: {s.line}" for s in found[:3]])


def _without_remedy(label: str, log: str, base: str, *, by_choice: bool, own: bool) -> PxError:
    name = label.partition(" ")[0]
    limits = patterns.limits(log)
    lacking = patterns.without_capability(log, base)
    known = [f"px has no capability that brings {lacking[0]}."] if lacking and not limits else []
    fix = ["Use a version of it that has a wheel for this Python and platform, or one that builds here."]
    if own:
        fix = ["Correct what its build complains about, in its pyproject.toml or setup.py."]
    if own and limits:
        fix = [
            "Do without it, and have only what it depends on: [tool.uv] package = false",
            "Or build its wheel elsewhere (uv build --wheel), and add that to another project: px add ./NAME.whl",
        ]
    if by_choice:
        fix.insert(0, f"Let px take its wheel, if it has one: take {name} out of [tool.uv].no-binary-package")
    if used := patterns.undeclared(log):
        tool, requirement = used
        known.append(f"It uses {tool}, which its build requirements do not bring.")
        fix.insert(0, f'Let its build have {tool}: [tool.uv.extra-build-dependencies] {name} = ["{requirement}"]')
    why = [*limits[:1], *known, "\n    ".join(_telling(log)) or "it said nothing"]
    if not limits:
        fix.append(
            f"Or another base, whose libraries are of other versions than those of {base}: [tool.px.sandbox].base"
        )
    if console.settings.log is not None:
        fix.append(f"Read all that the build said: {console.settings.log}")
    return PxError("PX903", problem=f"{label} could not be built", why=why, fix=fix, whole_fix=True)


def _telling(log: str) -> list[str]:
    """The lines of a log that a person would look for: the first error of a compiler, and how it ended."""
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if _COMPILER.search(line)), None)
    if first is None or len(lines) - first <= 12:
        return lines[-12:]
    return [*lines[first : first + 6], "…", *lines[-6:]]
