"""Debian version numbers and how they compare (deb-version(7))."""

from __future__ import annotations

import re
from functools import cache

_PARTS = re.compile(r"(\D*)(\d*)")
_RELATIONS = {"<<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">>": (1,)}


def compare(a: str, b: str) -> int:
    """Return -1, 0 or 1 as version ``a`` is older than, equal to or newer than ``b``."""
    left, right = sort_key(a), sort_key(b)
    return (left > right) - (left < right)


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Whether ``version`` stands in ``relation`` (``>=``, ``<<`` …) to ``wanted``."""
    return compare(version, wanted) in _RELATIONS[relation]


SortKey = tuple[int, tuple[object, ...], tuple[object, ...]]


@cache
def sort_key(version: str) -> SortKey:
    """A key that orders versions; built so that tuples compare as the manual says characters do."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, "0"
    return int(epoch), _part_key(upstream), _part_key(revision)


def _part_key(part: str) -> tuple[object, ...]:
    key: list[object] = []
    for text, digits in _PARTS.findall(part):
        if not text and not digits:
            break
        # The end of the text weighs 0, between "~" and every other character.
        key.append((*(_weight(ch) for ch in text), 0))
        key.append(int(digits or "0"))
    # Past the end, the comparison goes on with empty text and the number 0.
    key.append((0,))
    return tuple(key)


def _weight(ch: str) -> int:
    if ch == "~":
        return -1
    return ord(ch) if ch.isalpha() else ord(ch) + 256
