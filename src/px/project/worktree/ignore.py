"""Which files of a working tree are not packed: git's own rules, px's, and what is never packed.

The patterns are read by the library ``pathspec``; this module gives them git's precedence: the deeper
``.gitignore`` wins, the last matching line wins, and nothing below an ignored directory comes back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pathspec import GitIgnoreSpec, RegexPattern

NEVER_DIRECTORIES = frozenset({
    ".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", "CVS",
    ".px", ".venv", ".env", "__pycache__", ".eggs",
    ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis", ".ipynb_checkpoints",
    ".metaflow", ".metaflow_spin",
})  # fmt: skip
"""Version control, px's own state, virtual environments, caches, and where Metaflow keeps the data of runs on this
machine: out even if they are committed."""

# .git is a file in a submodule or a linked working tree; .env files hold secrets.
_NEVER_FILES = re.compile(r"\.git|\.env|\.env\..*|\.coverage|\.DS_Store|.*\.py[co]", re.DOTALL)


# The group with which the library's expressions mark "and everything below".
_BELOW = "ps_d"


def never(name: str, *, directory: bool) -> bool:
    """Whether a file or directory of this name is left out wherever it is."""
    return name in NEVER_DIRECTORIES if directory else _NEVER_FILES.fullmatch(name) is not None


@dataclass(frozen=True)
class Patterns:
    """The lines of one ignore file, for paths below ``base``."""

    base: str
    spec: GitIgnoreSpec

    @classmethod
    def read(cls, path: Path, base: str) -> Patterns | None:
        if not path.is_file():  # a target may have put a pipe there, which would never end
            return None
        return cls.of(path.read_bytes().decode("utf-8", "surrogateescape").removeprefix("\ufeff").splitlines(), base)

    @classmethod
    def of(cls, lines: Iterable[str], base: str = "") -> Patterns:
        from pathspec import GitIgnoreSpec

        return cls(base, GitIgnoreSpec.from_lines(lines))

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        """True: ignored; False: asked for by a ``!`` line; None: no line speaks of it."""
        relative = path[len(self.base) + 1 :] if self.base else path
        return last_match(self.spec, relative + "/" if directory else relative)


def last_match(spec: GitIgnoreSpec, path: str) -> bool | None:
    """The verdict of the last line that matches ``path`` itself.

    The library also lets a line match what lies below the directory that it names.  Git does not: it
    decides about the directory, and either never looks into it or asks about each thing in it anew.
    """
    for pattern in reversed(cast("list[RegexPattern]", spec.patterns)):
        regex = pattern.regex
        # None: an empty line or a comment.
        if regex is not None and any(_itself(found, path) for found in regex.finditer(path)):
            return pattern.include
    return None


def _itself(found: re.Match[str], path: str) -> bool:
    if _BELOW in found.re.groupindex and found.end(_BELOW) >= 0:
        return found.end(_BELOW) == len(path)
    # "a/**" is about what is in a, not about a.
    return not (found.end() == len(path) and found[0].endswith("/"))


def ignored(stack: tuple[Patterns, ...], path: str, *, directory: bool) -> bool:
    """Ask the ignore files from the nearest to the farthest; the first that knows the path decides."""
    for patterns in reversed(stack):
        found = patterns.verdict(path, directory=directory)
        if found is not None:
            return found
    return False


@dataclass(frozen=True)
class OwnRules:
    """``.pxignore`` and the manifest's excludes: they decide before git's rules do, for committed files too."""

    patterns: Patterns | None
    """None: there are no lines."""
    asks: bool
    """Whether some line asks for what git ignores."""
    wanted: frozenset[str]
    """Directories on the way to what a ``!`` line asks for: entered although git ignores them."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> OwnRules:
        kept = list(lines)
        asks = any(line.startswith("!") for line in kept)
        wanted = {parent for line in kept if line.startswith("!") for parent in _way_to(line[1:])}
        return cls(Patterns.of(kept) if kept else None, asks, frozenset(wanted))

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        return self.patterns.verdict(path, directory=directory) if self.patterns is not None else None


def _way_to(pattern: str) -> list[str]:
    """The directories above a pattern that is anchored (has a slash inside), up to its first wildcard."""
    parts = pattern.strip().strip("/").split("/")
    literal = []
    for part in parts[:-1]:
        if set(part) & set("*?[\\"):
            break
        literal.append(part)
    return ["/".join(literal[: n + 1]) for n in range(len(literal))]
