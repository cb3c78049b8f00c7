"""The commands on the pages: every line of a shell block, and every line behind a ``$`` in a block of what was said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import REPO

_BLOCK = re.compile(r"^```([\w-]*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHELL = {"sh", "bash", "shell"}


@dataclass(frozen=True)
class Documented:
    """One command, as it stands on a page."""

    page: str
    text: str
    """Without its comment, continued lines joined."""

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def pages() -> list[Path]:
    return [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]


@cache
def documented() -> tuple[Documented, ...]:
    found = [Documented(str(page.relative_to(REPO)), text) for page in pages() for text in commands(page.read_text())]
    return tuple(dict.fromkeys(found))


def commands(page: str) -> Iterator[str]:
    for language, block in _BLOCK.findall(page):
        joined = re.sub(r"\s*\\\n\s*", " ", block)
        for line in joined.splitlines():
            if line.startswith("$ "):
                yield without_comment(line[2:])
            elif language in _SHELL and line.strip() and not line.lstrip().startswith("#"):
                yield without_comment(line.strip())


def without_comment(line: str) -> str:
    """The command; a ``#`` in quotes is not the start of a comment."""
    for place in [m.start() for m in re.finditer(r"\s+#", line)]:
        try:
            shlex.split(line[:place])
        except ValueError:  # inside of quotes
            continue
        return line[:place].rstrip()
    return line.rstrip()
