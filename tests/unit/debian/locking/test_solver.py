"""Choosing packages: alternatives, virtual names, newest versions, conflicts, and errors that name the chain."""

from __future__ import annotations

import itertools

import pytest

from px.debian.locking.index import Index
from px.debian.locking.solver import UnsolvableError, solve
from tests.support.debian import stanza


def index(*stanzas: str, **suites: list[str]) -> Index:
    texts = [("bookworm", "\n\n".join(stanzas))]
    return Index(texts + [(name.replace("_", "-"), "\n\n".join(rows)) for name, rows in suites.items()])


def names(found: Index, seeds: list[str], **options: object) -> list[str]:
    return list(solve(found, seeds, **options))  # type: ignore[arg-type]


def test_the_closure() -> None:
    found = index(stanza("a", Depends="b, c"), stanza("b", Pre_Depends="c"), stanza("c"), stanza("d"))
    assert names(found, ["a"]) == ["a", "b", "c"]


def test_the_newest_version_of_all_suites_wins() -> None:
    found = index(
        stanza("a", "1.0-1"), bookworm_security=[stanza("a", "1.0-1+deb12u2")], bookworm_updates=[stanza("a")]
    )
    assert solve(found, ["a"])["a"].suite == "bookworm-security"


def test_the_first_alternative_that_exists_unless_one_is_there() -> None:
    found = index(stanza("a", Depends="gone | b | c"), stanza("b"), stanza("c"))
    assert names(found, ["a"]) == ["a", "b"]
    assert names(found, ["a", "c"]) == ["a", "c"]


def test_virtual_names_by_priority_then_name() -> None:
    mawk = stanza("mawk", Provides="awk", Priority="required")
    gawk = stanza("gawk", Provides="awk")
    found = index(stanza("a", Depends="awk"), gawk, mawk, stanza("bawk", Provides="awk"))
    assert names(found, ["a"]) == ["a", "mawk"]
    assert names(found, ["a", "gawk"]) == ["a", "gawk"]


def test_a_versioned_wish_needs_a_versioned_provides() -> None:
    found = index(stanza("a", Depends="x (>= 2)"), stanza("b", Provides="x"), stanza("c", Provides="x (= 2.1)"))
    assert names(found, ["a"]) == ["a", "c"]


def test_dropped_packages_are_left_out_unless_they_are_asked_for() -> None:
    found = index(
        stanza("a", Depends="debconf | debconf-2.0, b"), stanza("b"), stanza("debconf", Depends="perl"), stanza("perl")
    )
    assert names(found, ["a"], drop=["debconf"]) == ["a", "b"]
    assert names(found, ["a", "debconf"], drop=["debconf"]) == ["a", "b", "debconf", "perl"]


def test_what_is_installed_is_not_named_again() -> None:
    found = index(stanza("a", Depends="b"), stanza("b", Depends="c"), stanza("c"))
    base = solve(found, ["b"])
    assert names(found, ["a"], installed=base) == ["a"]


def test_an_alternative_that_conflicts_is_passed_over() -> None:
    jack0 = stanza("libjack0", Conflicts="libjack-jackd2-0")
    jack_dev = stanza("libjack-dev", Depends="libjack0")
    other_dev = stanza("libjack-jackd2-dev", Provides="libjack-dev", Depends="libjack-jackd2-0")
    found = index(stanza("a", Depends="libjack-dev"), jack0, jack_dev, other_dev, stanza("libjack-jackd2-0"))
    installed = solve(found, ["libjack-jackd2-0"])
    assert names(found, ["a"], installed=installed) == ["a", "libjack-jackd2-dev"]


def test_a_package_that_does_not_exist() -> None:
    with pytest.raises(UnsolvableError, match="there is no package nosuch"):
        solve(index(stanza("a")), ["nosuch"])


def test_a_dependency_that_cannot_be_met_names_the_chain() -> None:
    found = index(stanza("a", Depends="b"), stanza("b", Depends="c (>= 3) | d"), stanza("c", "2.0"))
    with pytest.raises(UnsolvableError, match=r"b 1.0-1 depends on c \(>= 3\) \| d") as caught:
        solve(found, ["a"])
    assert caught.value.chain == ("b", "a")


def test_conflicts_and_breaks_are_refused() -> None:
    for field in ("Conflicts", "Breaks"):
        found = index(stanza("a", **{field: "b (<< 2)"}), stanza("b", "1.0"))
        with pytest.raises(UnsolvableError, match=r"a 1\.0-1 conflicts with b 1\.0"):
            solve(found, ["a", "b"])
        assert names(index(stanza("a", **{field: "b (<< 1)"}), stanza("b", "1.0")), ["a", "b"]) == ["a", "b"]


def test_the_order_of_the_index_and_of_the_seeds_changes_nothing() -> None:
    rows = [
        stanza("a", Depends="x"),
        stanza("b", Provides="x"),
        stanza("c", Provides="x"),
        stanza("d", Depends="c | b"),
    ]
    results = {
        tuple(names(index(*order), seeds))
        for order in itertools.permutations(rows)
        for seeds in (["a", "d"], ["d", "a"])
    }
    assert len(results) == 1
