"""Alpine's version numbers, such as ``1.2.3b_rc1-r4``, and how they compare."""

from __future__ import annotations

import re
from functools import cache

_VERSION = re.compile(
    r"(?P<numbers>\d+(?:\.\d+)*)(?P<letter>[a-z]?)(?P<suffixes>(?:_[a-z]+\d*)*)(?:~[0-9a-f]+)?(?:-r(?P<revision>\d+))?"
)
_SUFFIX = re.compile(r"_([a-z]+)(\d*)")
# Suffixes below zero make a version older than the same version without a suffix, the others make it newer.
_RANKS = {"alpha": -4, "beta": -3, "pre": -2, "rc": -1, "cvs": 1, "svn": 2, "git": 3, "hg": 4, "p": 5}
SortKey = tuple[tuple[int, ...], str, tuple[tuple[int, int], ...], int]


@cache
def sort_key(version: str) -> SortKey:
    """A sort key for versions.  Raises :class:`ValueError` if the text is not a version."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"not an Alpine version: {version!r}")
    numbers = tuple(int(n) for n in found["numbers"].split("."))
    suffixes = [(_rank(name), int(digits or 0)) for name, digits in _SUFFIX.findall(found["suffixes"])]
    # (0, 0) stands for the end of the suffixes, between those below zero and the others.
    return numbers, found["letter"], (*suffixes, (0, 0)), int(found["revision"] or 0)


def _rank(suffix: str) -> int:
    if suffix not in _RANKS:
        raise ValueError(f"unknown suffix _{suffix}")
    return _RANKS[suffix]


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Whether ``version relation wanted`` is true.  ``~`` means "begins with": 3.12 matches 3.12.3 and 3.12-r0."""
    if relation in ("~", "=~", "~="):
        return version == wanted or version.startswith((f"{wanted}.", f"{wanted}-", f"{wanted}_"))
    a, b = sort_key(version), sort_key(wanted)
    return {"<": a < b, "<=": a <= b, "=": a == b, ">=": a >= b, ">": a > b}[relation]
