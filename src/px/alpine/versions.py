"""Alpine's version numbers: ``1.2.3b_rc1-r4``, and how they compare."""

from __future__ import annotations

import re
from functools import cache

_VERSION = re.compile(
    r"(?P<numbers>\d+(?:\.\d+)*)(?P<letter>[a-z]?)(?P<suffixes>(?:_[a-z]+\d*)*)(?:~[0-9a-f]+)?(?:-r(?P<revision>\d+))?"
)
_SUFFIX = re.compile(r"_([a-z]+)(\d*)")
# Those below zero come before the version itself, the others after it.
_RANKS = {"alpha": -4, "beta": -3, "pre": -2, "rc": -1, "cvs": 1, "svn": 2, "git": 3, "hg": 4, "p": 5}
SortKey = tuple[tuple[int, ...], str, tuple[tuple[int, int], ...], int]


@cache
def sort_key(version: str) -> SortKey:
    """A key that orders versions; what is no version is a :class:`ValueError`."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"not an Alpine version: {version!r}")
    numbers = tuple(int(n) for n in found["numbers"].split("."))
    suffixes = [(_rank(name), int(digits or 0)) for name, digits in _SUFFIX.findall(found["suffixes"])]
    return numbers, found["letter"], (*suffixes, (0, 0)), int(found["revision"] or 0)


def _rank(suffix: str) -> int:
    if suffix not in _RANKS:
        raise ValueError(f"unknown suffix _{suffix}")
    return _RANKS[suffix]


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Whether ``version`` stands in ``relation`` to ``wanted``; ``~`` means "begins with"."""
    if relation in ("~", "=~", "~="):
        return version == wanted or version.startswith((f"{wanted}.", f"{wanted}-", f"{wanted}_"))
    a, b = sort_key(version), sort_key(wanted)
    return {"<": a < b, "<=": a <= b, "=": a == b, ">=": a >= b, ">": a > b}[relation]
