"""Programs on PATH, without those that a sandboxed process could have put there.

Whoever works in an activated environment has ``…/project/.venv/bin`` in front of PATH, and a target may write to the
project.  So px takes no program from a directory below the working directory, or below one with a ``pyproject.toml``.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def program(name: str) -> str | None:
    """The first program of this name that px may run."""
    for directory in _directories():
        candidate = os.path.join(directory, name)
        # First the cheap question: most directories do not have it.
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK) and _is_trusted(directory):
            return candidate
    return None


def programs_path() -> str:
    """PATH for a program that starts others by their names."""
    return os.pathsep.join(directory for directory in _directories() if _is_trusted(directory))


def _directories() -> Iterator[str]:
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if directory.startswith("/"):
            yield directory


def _is_trusted(directory: str) -> bool:
    """Whether a directory, under the name that it has and under its real one, lies in nobody's project."""
    here = os.getcwd()
    return not any(_is_in_project(d, here) for d in {os.path.normpath(directory), os.path.realpath(directory)})


def _is_in_project(directory: str, here: str) -> bool:
    # A shell in / or in /usr does not make the whole machine a project.
    if here.count("/") > 1 and (directory == here or directory.startswith(here + "/")):
        return True
    while not os.path.isfile(f"{directory}/pyproject.toml"):
        if directory == "/":
            return False
        directory = os.path.dirname(directory)
    return True
