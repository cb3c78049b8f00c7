"""Debian version numbers, and how they compare (deb-version(7))."""

from __future__ import annotations

import re
from functools import cache

# A version is text and number in turns: 1.2~rc3 is "", 1, ".", 2, "~rc", 3.
_PARTS = re.compile(r"(\D*)(\d*)")
_RELATIONS = {"<<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">>": (1,)}


def compare(a: str, b: str) -> int:
    """Return -1, 0 or 1 if version ``a`` is older than, equal to or newer than ``b``."""
    left, right = sort_key(a), sort_key(b)
    return (left > right) - (left < right)


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Whether ``version relation wanted`` is true; ``relation`` is one of ``<<``, ``<=``, ``=``, ``>=`` and ``>>``."""
    return compare(version, wanted) in _RELATIONS[relation]


SortKey = tuple[int, tuple[object, ...], tuple[object, ...]]


@cache
def sort_key(version: str) -> SortKey:
    """A sort key for versions: epoch, upstream version, Debian revision."""
    # [EPOCH:]UPSTREAM[-REVISION].  The upstream version may contain hyphens, so the last one counts.
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
        # The expression also matches the empty text at the end.
        if not text and not digits:
            break
        # 0 stands for the end of the text.  "~" sorts before the end, so that 1.0~rc1 is older than 1.0.
        key.append((*(_weight(ch) for ch in text), 0))
        key.append(int(digits or "0"))
    # A version that ends here is compared with the rest of a longer one as if empty text followed.
    key.append((0,))
    return tuple(key)


def _weight(ch: str) -> int:
    # Letters sort before all other characters, except "~".
    if ch == "~":
        return -1
    return ord(ch) if ch.isalpha() else ord(ch) + 256
