"""Links of the project that lead out of it: on this machine they work, in a sandbox there is nothing at their end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.warm.spec import APP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.warm.record import BuiltSandbox

_ABSENT = "No such file or directory"
_NAMED = re.compile(r"'([^']+)'|([^\s:'\"]+)")
_MOST = 200


def leads_out(text: str, built: BuiltSandbox) -> PxError | None:
    """The error for a file that a failed target did not find because a link on its way leads out of the project."""
    root = Path(built.root)
    for name in _names(text):
        link = _link_on_the_way(root, name)
        if link is not None:
            written = os.readlink(link)
            inside = os.path.normpath(os.path.join(APP, link.relative_to(root).parent, written))
            volume = f"--volume {link.resolve()}:{inside}"
            return PxError("PX024", link=link.relative_to(root), leads_to=written, volume=volume)
    return None


def _names(text: str) -> Iterator[str]:
    """Every word that may be a path, on the last lines that miss a file."""
    lines = [line for line in text.splitlines() if _ABSENT in line]
    for line in lines[-_MOST:]:
        for found in _NAMED.finditer(line):
            yield found[1] or found[2]


def _link_on_the_way(root: Path, name: str) -> Path | None:
    """The first link on the way to a path of the sandbox that leads out of the project, to something that is there."""
    at = root if name.startswith(f"{APP}/") else Path.cwd()
    relative = name.removeprefix(f"{APP}/")
    if relative.startswith("/") or not at.is_relative_to(root):
        return None
    for part in Path(relative).parts:
        at = at / part
        if at.is_symlink() and at.exists() and not at.resolve().is_relative_to(root.resolve()):
            return at
    return None
