"""What a shell asks when Tab is pressed: the words that may stand where the cursor is.

It must feel like nothing, so it imports nothing but os and sys, and tomllib only where a name of the manifest is asked
for.  It runs nothing of the project and only reads: names of files, and the manifest.  Both may be anybody's, so they
are bounded, and a name with a character that a shell or a terminal could take for more than a letter is left out.

An answer is a word and what it is, with a tab between them.  ``:files`` and ``:directories`` ask the shell for those.
"""

from __future__ import annotations

import os
import sys

from px import DATA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+")
_MOST_NAMES = 2000
_MOST_BYTES = 1 << 20
_DEEPEST = 64

Rows = dict[str, dict[str, tuple[str, str]]]
"""Command -> flag, ``*`` or word -> what it takes, what it is."""


def main(words: Sequence[str]) -> None:
    """Print what may stand in the place of the last word."""
    sys.stdout.write("".join(f"{word}\t{about}\n" if about else f"{word}\n" for word, about in answer(words)))


def answer(words: Sequence[str]) -> list[tuple[str, str]]:
    line = _joined(words)
    rows, current = table(), line[-1] if line else ""
    so_far = _SoFar(rows, line[:-1])
    own = rows.get(so_far.command, {}) if so_far.command else rows["doctor"] | rows[""]
    if so_far.wanted:
        return _values(rows, so_far.wanted, current, so_far.directory)
    if so_far.beyond:
        return [(":files", "")]
    if current.startswith("--") and "=" in current:
        name, _, value = current.partition("=")
        found = _values(rows, own.get(name, ("", ""))[0], value, so_far.directory)
        return [(f"{name}={word}", about) for word, about in found if word[0] != ":"]
    if current.startswith("-"):
        return _starting(((name, row[1]) for name, row in own.items() if name[0] == "-"), current)
    if so_far.command and own:
        return _values(rows, own.get("*", ("", ""))[0], current, so_far.directory)
    return _commands(rows, so_far.command, current)


class _SoFar:
    """What the words in front of the cursor say."""

    def __init__(self, rows: Rows, words: Sequence[str]) -> None:
        self.command = ""
        self.wanted = ""
        """What the value of the flag in front of the cursor is."""
        self.directory = ""
        """The value of ``--project``."""
        self.beyond = False
        """Whether the cursor is behind a target, where nothing is px's."""
        self._rows = rows
        self._flag = ""
        for word in words:
            self._take(word)

    def _take(self, word: str) -> None:
        own = self._rows.get(self.command or "doctor", self._rows["doctor"])
        if self.wanted:
            self.directory = word if self._flag == "--project" else self.directory
            self.wanted = ""
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            self._flag, self.wanted = word, "" if self.beyond else own.get(word, ("", ""))[0]
            self.directory = value if name == "--project" else self.directory
        elif not self.command:
            self.command = word
        elif self.command not in self._rows and any(name.startswith(self.command + " ") for name in self._rows[""]):
            self.command = f"{self.command} {word}"
        else:
            self.beyond = "*rest" in own


def table() -> Rows:
    """The table of all commands, from the file that `make docs` writes."""
    rows: Rows = {}
    with open(os.path.join(DATA, "completions", "words.tsv"), encoding="utf-8") as f:
        for line in f:
            command, name, takes, about = line.rstrip("\n").split("\t")
            name = "*rest" if name == "*" and takes == "rest" and "*" in rows.get(command, {}) else name
            rows.setdefault(command, {})[name] = (takes, about)
    return rows


def _joined(words: Sequence[str]) -> list[str]:
    """The words without the ``=`` that bash takes for a word of its own."""
    return ["" if word == "=" else word for i, word in enumerate(words) if word != "=" or i == len(words) - 1]


def _commands(rows: Rows, command: str, current: str) -> list[tuple[str, str]]:
    if not command:
        return _starting(((n, row[1]) for n, row in rows[""].items() if " " not in n and n[0] != "-"), current)
    inside = command + " "
    return _starting(((n.removeprefix(inside), row[1]) for n, row in rows[""].items() if n.startswith(inside)), current)


def _values(rows: Rows, takes: str, current: str, directory: str) -> list[tuple[str, str]]:
    if takes == "directory":
        return [(":directories", "")]
    if takes in {"file", "rest"}:
        return [(":files", "")]
    if takes == "target":
        return [*_starting(((name, "") for name in _targets(directory)), current), (":files", "")]
    if takes in {"capability", "base"}:
        return _starting(((name, row[1]) for name, row in rows[f"={takes}"].items()), current)
    if takes in {"group", "extra", "requirement"}:
        return _starting(((name, "") for name in _of_manifest(takes, directory)), current)
    return _starting(((word, "") for word in takes.split("|") if takes not in {"", "any"}), current)


def _starting(words: Iterable[tuple[str, str]], start: str) -> list[tuple[str, str]]:
    return [(word, about) for word, about in words if word.startswith(start)]


# --- what is the project's -------------------------------------------------------------------------------------


def _root(directory: str) -> str:
    """The nearest directory with a manifest, from here up."""
    here = os.path.abspath(directory or ".")
    for _ in range(_DEEPEST if os.path.isdir(here) else 0):
        if os.path.exists(os.path.join(here, "pyproject.toml")):
            return here
        here = os.path.dirname(here)
    return here


def _targets(directory: str) -> list[str]:
    """The programs of the env on this machine."""
    found = {"python"}
    try:
        with os.scandir(os.path.join(_root(directory), ".px", "envs", "current", "bin")) as entries:
            found |= {entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False)}
    except OSError:
        pass
    return _plain(name for name in found if not name.lower().startswith("activate"))


def _of_manifest(kind: str, directory: str) -> list[str]:
    document = _manifest(os.path.join(_root(directory), "pyproject.toml"))
    project = _dict(document.get("project"))
    extras, groups = _dict(project.get("optional-dependencies")), _dict(document.get("dependency-groups"))
    if kind == "group":
        return _plain(groups)
    if kind == "extra":
        return _plain(extras)
    lists = [project.get("dependencies"), *extras.values(), *groups.values()]
    return _plain({_name(one) for found in lists if isinstance(found, list) for one in found if isinstance(one, str)})


def _manifest(path: str) -> dict[str, Any]:
    import tomllib  # costs as much as all the rest

    try:
        # A pipe would wait for a writer, and there is no end to a device.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as f:
            content = f.read(_MOST_BYTES) if _is_regular(f.fileno()) else b""
        return tomllib.loads(content.decode())
    except (OSError, ValueError, RecursionError):
        return {}


def _is_regular(descriptor: int) -> bool:
    return os.fstat(descriptor).st_mode & 0o170000 == 0o100000


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _name(requirement: str) -> str:
    """The name in front of a requirement's extras, version and markers."""
    end = next((i for i, sign in enumerate(requirement) if sign not in _PLAIN), len(requirement))
    return requirement[:end]


def _plain(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name and _PLAIN.issuperset(name) and not name.startswith("-"))[:_MOST_NAMES]
