"""Files that git compares by way of a filter, which px does not run.

git looks at sizes and times first, so in an ordinary checkout nobody needs the filter.  Where git asks for it (after a
copy of the tree, say), px compares what Git LFS stores by itself.  Of other filters it says that it did not run them.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

from px import foreign
from px.errors import PxError
from px.project.git.shadow import git

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NONE = ("unspecified", "unset", "set", "")
_POINTER = re.compile(
    r"version https://git-lfs\.github\.com/spec/v1\noid sha256:(?P<sha256>[0-9a-f]{64})\nsize (?P<size>[0-9]+)\n"
)
_LARGEST_POINTER = 1024


def filters_of(directory: Path, paths: Sequence[str]) -> dict[str, str]:
    """Path -> the name of its filter, for those that have one."""
    if not paths:
        return {}
    names = "\0".join(paths).encode("utf-8", "surrogateescape")
    said = git(directory, "check-attr", "--stdin", "-z", "filter", stdin=names).split("\0")
    return {path: name for path, _, name in zip(said[::3], said[1::3], said[2::3], strict=False) if name not in _NONE}


def judge(directory: Path, path: str, blob: str, name: str) -> str | None:
    """What is different in a file with a filter; None if it has the content that Git LFS stored."""
    if name == "lfs" and _is_as_stored(directory, path, blob):
        return None
    return f"modified (as far as px can see: it does not run the filter {name})"


def _is_as_stored(directory: Path, path: str, blob: str) -> bool:
    if int(git(directory, "cat-file", "-s", blob)) > _LARGEST_POINTER:
        return False
    pointer = _POINTER.fullmatch(git(directory, "cat-file", "blob", blob))
    file = directory / path
    try:
        with foreign.opened(file.parent, file.name) as fd, os.fdopen(os.dup(fd), "rb") as f:
            size = os.fstat(fd).st_size
            return pointer is not None and str(size) == pointer["size"] and _sha256(f) == pointer["sha256"]
    except PxError:
        return False


def _sha256(file: object) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
