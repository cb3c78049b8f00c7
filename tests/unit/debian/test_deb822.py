"""Stanzas and dependency fields."""

from __future__ import annotations

import pytest

from px.debian.deb822 import Relation, parse_relations, parse_stanza, stanzas
from tests.support.bounded import no_hang


def test_stanza_with_continuation_lines_and_comments() -> None:
    text = "Package: a\n# a comment\nDescription: short\n long\n .\n\tmore\nEmpty:\n"
    assert parse_stanza(text) == {"Package": "a", "Description": "short\nlong\n.\nmore", "Empty": ""}


def test_stanzas_are_cut_at_blank_lines_however_many() -> None:
    assert [s.strip() for s in stanzas("\n\nA: 1\nB: 2\n\n \n\nC: 3\n\n")] == ["A: 1\nB: 2", "C: 3"]


def test_relations() -> None:
    groups = parse_relations("libc6 (>= 2.36), python3:any (>=3.11~), mawk | awk,\n perl [amd64] <!nocheck>")
    assert groups == (
        (Relation("libc6", ">=", "2.36"),),
        (Relation("python3", ">=", "3.11~"),),
        (Relation("mawk"), Relation("awk")),
        (Relation("perl"),),
    )


@pytest.mark.parametrize("text", ["", " ", ",", "\n"])
def test_no_relations(text: str) -> None:
    assert parse_relations(text) == ()


def test_what_is_no_dependency_is_refused() -> None:
    with pytest.raises(ValueError, match="not a dependency"):
        parse_relations("libc6 (>= )")


def test_a_dependency_with_much_white_space() -> None:
    """The expression for it has three places that take white space: the third power of its length."""
    with no_hang(10), pytest.raises(ValueError, match="not a dependency"):
        parse_relations("a" + " " * 20_000 + "!")


def test_a_stanza_that_begins_with_a_continuation() -> None:
    with pytest.raises(ValueError, match="continues nothing"):
        parse_stanza(" a\nPackage: a\n")
