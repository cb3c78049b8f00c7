"""Version comparison: the manual's rules, and the cases that simple comparisons get wrong."""

from __future__ import annotations

import itertools

import pytest

from px.debian.versions import compare, satisfies

# Oldest first; every pair is compared in both directions.
ASCENDING = [
    *("0~~", "0~~a", "0~", "0", "0+", "0.1", "1.0~beta1~svn1245", "1.0~beta1", "1.0~rc1-1", "1.0-0.1", "1.0-1~deb12u1"),
    *("1.0-1", "1.0-1+b1", "1.0-1+deb12u2", "1.0-1+deb12u10", "1.0-2", "1.0+dfsg-1", "1.0.1-1", "1.2-1", "1.10-1"),
    *("2a-1", "2b-1", "2.0-1", "10-1", "1:0.1-1", "1:1-1", "2:0-1"),
]


def test_order() -> None:
    for older, newer in itertools.combinations(ASCENDING, 2):
        assert compare(older, newer) == -1, (older, newer)
        assert compare(newer, older) == 1, (older, newer)
        assert compare(older, older) == 0


@pytest.mark.parametrize(("a", "b"), [("1.0", "1.0-0"), ("0:1.0-1", "1.0-1"), ("1.00", "1.0"), ("1.0-01", "1.0-1")])
def test_spellings_of_one_version(a: str, b: str) -> None:
    assert compare(a, b) == 0


@pytest.mark.parametrize(
    ("version", "relation", "wanted", "expected"),
    [
        ("1.0-1", ">=", "1.0", True),
        ("1.0~rc1", ">=", "1.0", False),
        ("1.0-1", "=", "1.0-1", True),
        ("1.0-1", "<<", "1.0-1", False),
        ("1.0-1", "<=", "1.0-1", True),
        ("2:1", ">>", "9", True),
    ],
)
def test_relations(version: str, relation: str, wanted: str, expected: bool) -> None:
    assert satisfies(version, relation, wanted) is expected
