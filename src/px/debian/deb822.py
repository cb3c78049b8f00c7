"""Debian's control format: stanzas of ``Field: value`` lines, and dependency fields.

An index has tens of thousands of stanzas of which a lock needs a hundred, so an index is only cut at its
blank lines; a stanza is parsed when somebody asks for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.debian.versions import satisfies

if TYPE_CHECKING:
    from collections.abc import Iterator

_RELATION = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+.-]*)(?::(?P<qualifier>[a-z0-9-]+))?"
    r"\s*(?:\(\s*(?P<op><<|<=|=|>=|>>)\s*(?P<version>[^\s)]+)\s*\))?"
    r"\s*(?:\[[^\]]*\])?\s*(?:<[^>]*>\s*)*"
)


@dataclass(frozen=True)
class Relation:
    """One name with an optional version condition, out of a Depends, Provides or Conflicts field."""

    name: str
    op: str = ""
    version: str = ""

    def accepts(self, version: str) -> bool:
        return not self.op or satisfies(version, self.op, self.version)

    def __str__(self) -> str:
        return f"{self.name} ({self.op} {self.version})" if self.op else self.name


def parse_stanza(text: str) -> dict[str, str]:
    """Fields of one stanza; continuation lines keep their line breaks."""
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith((" ", "\t")):
            fields[name] += "\n" + line.strip()
        elif line and not line.startswith("#"):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields


def stanzas(text: str) -> Iterator[str]:
    """The stanzas of a file, unparsed."""
    for block in re.split(r"\n[ \t]*(?:\n[ \t]*)*\n", text):
        if block.strip():
            yield block


def parse_relations(field: str) -> tuple[tuple[Relation, ...], ...]:
    """``a (>= 1), b | c`` as groups of alternatives; architecture qualifiers are not needed for one architecture."""
    groups = (group for group in field.replace("\n", " ").split(",") if group.strip())
    return tuple(tuple(_parse_relation(part) for part in group.split("|")) for group in groups)


def _parse_relation(text: str) -> Relation:
    found = _RELATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a dependency: {text.strip()!r}")
    return Relation(found["name"], found["op"] or "", found["version"] or "")
