"""What a failed build or run says that it misses, by the messages in ``data/patterns.toml``.

The text is searched line by line, and every line that names a missing library, header or program is a complaint.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from px import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 2000  # characters of one line: minified output and progress bars are not messages
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Complaint:
    """One line of output, understood."""

    kind: str
    """library, header, program, linker, pkgconfig or module"""
    name: str
    line: str
    capability: str | None = None
    """The capability that brings it, where the message alone decides."""


@dataclass(frozen=True)
class _Pattern:
    kind: str
    regex: re.Pattern[str]
    capability: str | None


@cache
def table() -> dict[str, Any]:
    """The data file, parsed."""
    with open(f"{DATA}/patterns.toml", "rb") as f:
        return tomllib.load(f)


def names(table_name: str) -> dict[str, str]:
    """One of the file's tables that turn the name of a thing into a capability or a requirement."""
    found: dict[str, str] = table()[table_name]
    return found


@cache
def _hints() -> re.Pattern[str]:
    """What every line that can match has somewhere."""
    return re.compile("|".join(map(re.escape, table()["hints"])), re.IGNORECASE)


@cache
def _patterns() -> tuple[_Pattern, ...]:
    return tuple(_Pattern(r["kind"], re.compile(r["regex"]), r.get("capability")) for r in table()["pattern"])


def complaints(text: str) -> Iterator[Complaint]:
    """Everything that the text says is missing, in its order."""
    for line in text.splitlines():
        if _hints().search(line) is None:
            continue
        plain = _ESCAPES.sub("", line)[:_LONGEST]
        for pattern in _patterns():
            for hit in pattern.regex.finditer(plain):
                yield Complaint(pattern.kind, hit.group("name"), plain.strip(), pattern.capability)
