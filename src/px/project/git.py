"""What git says about a working tree: the commit, what is tracked, what is not committed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

_GITLINK, _EXECUTABLE = "160000", "100755"
# How git lets people spell them, in any case; a name without a value is true.
_BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), "true") | dict.fromkeys(("false", "no", "off", "0"), "false")
# A hook or an outer git may have set these for another repository than the one we look at.
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")


@dataclass(frozen=True)
class Change:
    """One path that is not as it was committed."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}: {self.path}"


@dataclass(frozen=True)
class Commit:
    """The commit that is checked out."""

    revision: str
    time: int
    """When it was made, in seconds since 1970."""
    remote: str
    """Where the repository is published, without credentials; empty if nowhere."""


@dataclass(frozen=True)
class Tracked:
    """What the index holds below a directory, relative to it."""

    files: frozenset[str] = frozenset()
    submodules: frozenset[str] = frozenset()
    executable: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    """What ``git status`` is told not to look at: sparse checkouts, ``git update-index --assume-unchanged``."""


def repository_of(directory: Path) -> Path | None:
    """The top of the git working tree around ``directory``, or None where there is none."""
    for candidate in (directory, *directory.parents):
        if (candidate / ".git").exists():
            return candidate
    return None


def governing_repository(directory: Path) -> Path | None:
    """The repository that ``directory`` is part of.

    A project inside a directory that an outer repository ignores (a build directory, say) is not part of
    it: that repository has nothing to say about its files.
    """
    top = repository_of(directory)
    if top is None or top == directory:
        return top
    if tracked(directory) == Tracked() and _is_ignored(directory):
        return None
    return top


def _is_ignored(directory: Path) -> bool:
    try:
        git(directory, "check-ignore", "-q", ".")
    except PxError:
        return False
    return True


def git(directory: Path, *args: str) -> str:
    """Run git for its output; it may read everything and write nothing."""
    env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = run(["git", "-c", "core.fsmonitor=false", *args], cwd=directory, env=env)
    except (FileNotFoundError, PermissionError):  # the latter if a directory of PATH may not be searched
        raise PxError(
            "PX924", directory=directory, reason="There is no git program on PATH.", remedy="Install git."
        ) from None
    if not done.ok:
        said = done.stderr.strip() or f"git {args[0]} ended with {done.code}"
        remedy = f"See what git says: git -C {directory} status"
        if "dubious ownership" in said:
            remedy = f"If you trust it: git config --global --add safe.directory {directory}"
        raise PxError("PX924", directory=directory, reason=said.splitlines()[0], remedy=remedy)
    return done.stdout


def commit_of(directory: Path) -> Commit | None:
    """The commit that is checked out; None before the first one."""
    try:
        revision, seconds = git(directory, "log", "-1", "--no-show-signature", "--format=%H %ct", "HEAD").split()
    except PxError as e:
        # A repository without commits is no failure of git's: HEAD names a branch that is not there yet.
        if "unknown revision" in str(e) or "does not have any commits" in str(e) or "bad revision" in str(e):
            return None
        raise
    return Commit(revision, int(seconds), _remote(directory))


def _remote(directory: Path) -> str:
    try:
        url = git(directory, "config", "--get", "remote.origin.url").strip()
    except PxError:
        return ""
    if "://" not in url or "@" not in url:
        return url
    from px.http import split_credentials

    return split_credentials(url)[0]


def tracked(directory: Path) -> Tracked:
    """Every tracked path below ``directory``, with submodules as single paths."""
    files: set[str] = set()
    submodules: set[str] = set()
    executable: set[str] = set()
    hidden: set[str] = set()
    for row in git(directory, "ls-files", "-z", "--stage", "-v").split("\0"):
        meta, _, path = row.partition("\t")
        if not path:
            continue
        letter, mode = meta.split(" ")[:2]
        (submodules if mode == _GITLINK else files).add(path)
        if mode == _EXECUTABLE:
            executable.add(path)
        if letter == "S" or letter.islower():
            hidden.add(path)
    return Tracked(frozenset(files), frozenset(submodules), frozenset(executable), frozenset(hidden))


def settings(directory: Path) -> dict[str, str]:
    """The settings of git that say how the tree came to be what it is; names in lower case, the last value counts."""
    try:
        found = git(directory, "config", "-z", "--get-regexp", r"^core\.(excludesfile|filemode|autocrlf|eol)$")
    except PxError:  # none of them is set
        return {}
    rows = (row.partition("\n") for row in found.split("\0"))
    return {name: _BOOLEANS.get(value.lower(), value) if equals else "true" for name, equals, value in rows if name}


def exclude_files(directory: Path, configured: dict[str, str]) -> list[Path]:
    """Ignore files outside the tree: the user's own and the repository's, the weaker first."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    own = configured.get("core.excludesfile", str(Path(base) / "git" / "ignore"))
    found = [directory / os.path.expanduser(own)] if own else []
    found.append(directory / git(directory, "rev-parse", "--git-path", "info/exclude").strip())
    return found


def changes(directory: Path) -> list[Change]:
    """What below ``directory`` is not as in the commit: modified, staged, deleted, untracked, or in submodules."""
    args = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none", "--", ".")
    top = repository_of(directory) or directory
    prefix = directory.relative_to(top).as_posix()
    return sorted(_changes(git(directory, *args), "" if prefix == "." else prefix + "/"), key=lambda c: c.path)


def _changes(status: str, prefix: str) -> Iterator[Change]:
    """Read porcelain v2: its paths count from the top of the repository."""
    rows = iter(status.split("\0"))
    for row in rows:
        kind = row[:1]
        if kind == "?":
            yield Change(row[2:].removeprefix(prefix), "untracked")
        elif kind in ("1", "u"):
            fields = row.split(" ", 8 if kind == "1" else 10)
            yield Change(fields[-1].removeprefix(prefix), _what(fields[1], fields[2]))
        elif kind == "2":
            yield Change(row.split(" ", 9)[-1].removeprefix(prefix), "renamed")
            next(rows, None)  # the path that it had


def _what(state: str, submodule: str) -> str:
    if submodule.startswith("S"):
        return "submodule changed"
    if "U" in state or state in ("AA", "DD"):
        return "in conflict"
    if "D" in state:
        return "deleted"
    return "added" if state[0] == "A" else "modified"
