"""Debian's control format (deb822(5)): stanzas of ``Field: value`` lines, and dependency fields (deb-control(5)).

An index has tens of thousands of stanzas, and a lock needs about a hundred of them.  So an index is only split at its
blank lines, and a stanza is parsed when it is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.debian.versions import satisfies

if TYPE_CHECKING:
    from collections.abc import Iterator

# A name, an architecture qualifier (`python3:any`), a version in parentheses, then an architecture list in brackets and
# build profiles in angle brackets.  The last two are allowed in source packages only, and are read over.
_RELATION = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+.-]*)(?::(?P<qualifier>[a-z0-9-]+))?"
    r"\s*(?:\(\s*(?P<op><<|<=|=|>=|>>)\s*(?P<version>[^\s)]+)\s*\))?"
    r"\s*(?:\[[^\]]*\])?\s*(?:<[^>]*>\s*)*"
)


@dataclass(frozen=True)
class Relation:
    """A package name with an optional version condition, from a Depends, Provides or Conflicts field."""

    name: str
    op: str = ""
    version: str = ""

    def accepts(self, version: str) -> bool:
        return not self.op or satisfies(version, self.op, self.version)

    def __str__(self) -> str:
        return f"{self.name} ({self.op} {self.version})" if self.op else self.name


def parse_stanza(text: str) -> dict[str, str]:
    """The fields of one stanza.  A value of several lines keeps its line breaks."""
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        # A line that starts with white space continues the field above it.
        if line.startswith((" ", "\t")):
            if not name:
                raise ValueError(f"a line that continues nothing: {line[:100]!r}")
            fields[name] += "\n" + line.strip()
        elif line and not line.startswith("#"):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields


def stanzas(text: str) -> Iterator[str]:
    """The texts of the stanzas of a file."""
    for block in re.split(r"\n[ \t]*(?:\n[ \t]*)*\n", text):
        if block.strip():
            yield block


def parse_relations(field: str) -> tuple[tuple[Relation, ...], ...]:
    """Parse ``a (>= 1), b | c`` into groups of alternatives.

    Qualifiers such as ``:any`` are dropped.  They matter only where packages of several architectures are mixed.
    """
    groups = (group for group in field.replace("\n", " ").split(",") if group.strip())
    return tuple(tuple(_parse_relation(part) for part in group.split("|")) for group in groups)


def _parse_relation(text: str) -> Relation:
    # One space for many: the expression tries every way to share them out.
    text = " ".join(text.split())
    found = _RELATION.fullmatch(text)
    if found is None:
        raise ValueError(f"not a dependency: {text[:100]!r}")
    return Relation(found["name"], found["op"] or "", found["version"] or "")
