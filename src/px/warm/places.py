"""Places of this machine that a target could reach, and that px must not trust or not give away.

A target may write to the working tree, so whatever px reads or runs from there could be the target's.  Its repository,
px's own state and px itself are mounted read-only, if they lie in it.  px's home is not visible at all, wherever it
lies.  And px takes no program from a project: whoever works in an activated environment has ``…/project/.venv/bin`` in
front of PATH.
"""

from __future__ import annotations

import os
import sys

from px import DATA
from px.warm.spec import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GIT, STATE = ".git", ".px"


# --- what the target sees --------------------------------------------------------------------------------------


def arrange(
    tree: Mount, volumes: Iterable[Mount], home: str, *, git_write: bool = False
) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """A working tree and volumes with what must lie over them: all mounts in their order, and what is to be hidden."""
    mounts: list[Mount] = []
    hidden: list[str] = []
    home = os.path.realpath(home)
    for mount in (tree, *volumes):
        source = os.path.realpath(mount.source)
        if below(source, home) is not None:
            raise _in_home(source, home)
        mounts.append(mount)
        inner = below(home, source)
        own = ([STATE] if git_write else [GIT, STATE]) if mount is tree else []
        guarded = [] if mount.read_only else [name for name in (*own, *_installed(source)) if name != inner]
        pins: dict[str, Mount] = {}
        for relative in guarded:
            _pin(pins, mount, source, relative)
            pins[relative] = Mount(f"{source}/{relative}", f"{mount.target}/{relative}", True, own=True)
        if inner is not None:
            _pin(pins, mount, source, inner)
            hidden.append(f"{mount.target}/{inner}")
        # A mount covers what was mounted below it before.
        mounts += [pins[name] for name in sorted(pins)]
    return tuple(mounts), tuple(hidden)


def hidden_in(mounts: Iterable[Mount], home: str) -> tuple[str, ...]:
    """Where px's home would be seen through these mounts, for a sandbox that only reads."""
    home = os.path.realpath(home)
    inner = [(mount.target, below(home, os.path.realpath(mount.source))) for mount in mounts]
    return tuple(f"{target}/{relative}" for target, relative in inner if relative)


def _pin(pins: dict[str, Mount], mount: Mount, source: str, relative: str) -> None:
    """Mount the directories above a place on themselves: a mount point cannot be renamed, and another put there."""
    above = os.path.dirname(relative)
    while above and not mount.read_only:
        pins.setdefault(above, Mount(f"{source}/{above}", f"{mount.target}/{above}", own=True))
        above = os.path.dirname(above)


def _installed(source: str) -> list[str]:
    """Where px and its packages lie below a directory.  What PYTHONPATH names stays: it is the project's own code."""
    found: list[str] = []
    seen: list[str] = []
    for place in (sys.prefix, os.path.dirname(DATA), *(p for p in sys.path if p.endswith("-packages"))):
        # Nearly all of them lie in the first, and resolving a path takes a while.
        if any(below(place, known) is not None for known in seen):
            continue
        seen.append(place)
        relative = below(os.path.realpath(place), source)
        if relative:
            found.append(relative)
    return found


def below(path: str, directory: str) -> str | None:
    """``path`` as seen from a directory that it lies in (empty if they are the same), or None."""
    if path == directory:
        return ""
    front = directory.rstrip("/") + "/"
    return path[len(front) :] if path.startswith(front) else None


def _in_home(source: str, home: str) -> Exception:
    from px.errors import PxError

    return PxError("PX012", path=source, home=home)


# --- what px runs ----------------------------------------------------------------------------------------------


def program(name: str) -> str | None:
    """The first program of this name on PATH that px may run."""
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
    if here.count("/") > 1 and below(directory, here) is not None:
        return True
    while not os.path.isfile(f"{directory}/pyproject.toml"):
        if directory == "/":
            return False
        directory = os.path.dirname(directory)
    return True
