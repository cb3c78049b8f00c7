"""What git says about a working tree: what is tracked, what is not committed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from px.errors import PxError
from px.project.git.filters import filters_of, judge
from px.project.git.shadow import git, locate, repository_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_GITLINK, _EXECUTABLE = "160000", "100755"


@dataclass(frozen=True)
class Change:
    """One path that is not as it was committed."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}: {self.path}"


@dataclass(frozen=True)
class Tracked:
    """What the index holds below a directory, relative to it."""

    files: frozenset[str] = frozenset()
    submodules: frozenset[str] = frozenset()
    executable: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    """What ``git status`` is told not to look at: sparse checkouts, ``git update-index --assume-unchanged``."""


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
    return locate(directory).settings()


def exclude_files(directory: Path, configured: dict[str, str]) -> list[Path]:
    """Ignore files outside the tree: the user's own and the repository's, the weaker first."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    own = configured.get("core.excludesfile", str(Path(base) / "git" / "ignore"))
    found = [directory / os.path.expanduser(own)] if own else []
    return [*found, locate(directory).common / "info" / "exclude"]


def changes(directory: Path, *, untracked: bool = True) -> list[Change]:
    """What below ``directory`` is not as in the commit: modified, staged, deleted, untracked, or in submodules."""
    # With "dirty", git looks at the commit of a submodule only: for more it would start itself there, and see the
    # submodule's configuration.
    files = f"--untracked-files={'all' if untracked else 'no'}"
    status = git(directory, "status", "--porcelain=v2", "-z", files, "--ignore-submodules=dirty", "--", ".")
    top = repository_of(directory) or directory
    prefix = directory.relative_to(top).as_posix()
    prefix = "" if prefix == "." else prefix + "/"
    rows = list(_rows(status))
    filters = filters_of(directory, [row.path.removeprefix(prefix) for row in rows if row.is_content])
    found = {}
    for row in rows:
        path = row.path.removeprefix(prefix)
        change = Change(path, row.what)
        if path in filters:
            judged = judge(directory, path, row.blob, filters[path])
            if judged is None:
                continue
            change = Change(path, judged)
        found[path] = change
    for path in tracked(directory).submodules - found.keys():
        if (directory / path / ".git").exists() and changes(directory / path, untracked=untracked):
            found[path] = Change(path, "submodule changed")
    return sorted(found.values(), key=lambda c: c.path)


class _Row(NamedTuple):
    """One line of ``git status``; its path counts from the top of the repository."""

    path: str
    what: str
    blob: str = ""
    """What the index has, of a file that has another content in the working tree."""

    @property
    def is_content(self) -> bool:
        return bool(self.blob)


def _rows(status: str) -> Iterator[_Row]:
    """Read porcelain v2."""
    rows = iter(status.split("\0"))
    for row in rows:
        kind = row[:1]
        if kind == "?":
            yield _Row(row[2:], "untracked")
        elif kind == "1":
            # 1 XY sub mH mI mW hH hI path
            fields = row.split(" ", 8)
            only_content = fields[1] == ".M" and fields[2] == "N..." and fields[4] == fields[5]
            yield _Row(fields[8], _what(fields[1], fields[2]), fields[7] if only_content else "")
        elif kind == "u":
            fields = row.split(" ", 10)
            yield _Row(fields[-1], _what(fields[1], fields[2]))
        elif kind == "2":
            yield _Row(row.split(" ", 9)[-1], "renamed")
            next(rows, None)  # the path that it had


def _what(state: str, submodule: str) -> str:
    if submodule.startswith("S"):
        return "submodule changed"
    if "U" in state or state in ("AA", "DD"):
        return "in conflict"
    if "D" in state:
        return "deleted"
    return "added" if state[0] == "A" else "modified"
