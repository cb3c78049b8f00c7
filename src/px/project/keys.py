"""Keys of px's own tables in ``pyproject.toml``: what each may hold, and what it is for.

px checks manifests by these rows, and ``px/sandbox/schema.py`` makes the schema for editors of the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a value is; the words are those of an error."""

    STRING = "a string"
    BOOLEAN = "true or false"
    STRINGS = "an array of strings"
    TABLE = "a table"
    COUNT = "a number"


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    name: str
    kind: Kind
    meaning: str
    """One or two sentences, for the person who writes it."""
    default: object = None
    choices: tuple[str, ...] = ()
    """The only values that it may have, beside numbers; none if there are others."""
    example: object = None
    such_as: str = ""
    """A value as an error shows it."""
    keys: tuple[Key, ...] = ()
    """Those of the table that it is."""
    pattern: str = ""
    """What every string must look like, as a regular expression of JSON Schema: no more than px itself refuses."""

    most: int = 0
    """The largest number of a count."""

    @property
    def wanted(self) -> str:
        """How an error says what it should be."""
        if self.kind is Kind.COUNT:
            return " or ".join((str(self.kind.value), *map(repr, self.choices)))
        if self.choices:
            listed = " or ".join(map(repr, self.choices)) if len(self.choices) == 2 else ", ".join(self.choices)
            return listed if len(self.choices) == 2 else f"one of {listed}"
        return str(self.kind.value) + (f" such as {self.such_as}" if self.such_as else "")

    def accepts(self, value: object) -> bool:
        if self.kind is Kind.COUNT:
            # true and false are numbers in Python, and mean all and none.
            return value in self.choices or (isinstance(value, int) and 0 <= value <= self.most)
        if self.choices:
            return isinstance(value, str) and value in self.choices
        if self.kind is Kind.STRINGS:
            # No program takes an argument with a zero byte in it.
            return isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value)
        kinds: dict[Kind, type] = {Kind.STRING: str, Kind.BOOLEAN: bool, Kind.TABLE: dict}
        return isinstance(value, kinds[self.kind])


def names_of(keys: tuple[Key, ...]) -> tuple[str, ...]:
    return tuple(sorted(key.name for key in keys))
