"""The commit that is checked out, and a copy of it with its history."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.project.git.shadow import failure, git, git_without_repository, locate, shadow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.project.git.shadow import Repository


@dataclass(frozen=True)
class Commit:
    """The commit that is checked out."""

    revision: str
    time: int
    """When it was made, in seconds since 1970."""
    remote: str
    """Where the repository is published, without credentials; empty if nowhere."""


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
    url = locate(directory).local().get("remote.origin.url", "")
    if "://" not in url or "@" not in url:
        return url
    from px.http import split_credentials  # its HTTP client takes longer to import than the rest of a second pack

    return split_credentials(url)[0]


def resolve(directory: Path, revision: str) -> str | None:
    """The commit that a revision means (``HEAD~1``, a branch, a tag, the start of a hash); None if it means none."""
    try:
        # The brackets of git's language of revisions end in what they name: a commit, never a tree or a file.
        found = git(directory, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
    except PxError:
        return None
    return found if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found) else None


def clone(top: Path, into: Path, revision: str = "") -> None:
    """A repository of its own with the commit and its history, for a build to look at.

    Of ``revision``, a full hash, if it is given; else of the commit that is checked out.
    """
    repository = locate(top)
    if (borrowed := next(_borrowed(repository), None)) is not None:
        reason = f"The repository borrows from elsewhere ({borrowed}), and a build would see what it borrows."
        remedy = "Make it complete: git repack -a -d && rm -f .git/objects/info/alternates"
        raise failure(top, reason, remedy)
    with shadow(repository) as made:
        if revision:
            Path(made, "HEAD").write_text(f"{revision}\n")
        # No template: hooks have no business in it.  Not as a local clone, which would copy files and their links.
        words = ("clone", "--quiet", "--no-local", "--template=", made, os.fspath(into))
        git_without_repository(top, *words)
    config = os.fspath(into / ".git" / "config")
    git_without_repository(top, "config", "--file", config, "remote.origin.url", os.fspath(top))


def _borrowed(repository: Repository) -> Iterator[str]:
    """What of the repository's content is another's: links, and lists of other repositories."""
    for name in ("objects", "refs", "packed-refs", "reftable"):
        place = repository.common / name
        if place.is_symlink():
            yield name
        for directory, folders, files in os.walk(place):
            linked = (f for f in (*folders, *files) if os.path.islink(os.path.join(directory, f)))
            yield from (os.path.relpath(os.path.join(directory, f), repository.common) for f in linked)
    yield from (f"objects/info/{n}" for n in ("alternates", "http-alternates")
                if (repository.common / "objects" / "info" / n).exists())  # fmt: skip
