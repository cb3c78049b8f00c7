"""Alpine's versions, dependencies and archives."""

from __future__ import annotations

import gzip
import itertools

import pytest

from px import bounds
from px.alpine.apk import read_apk, streams
from px.alpine.index import Index, parse_index, parse_wish, solve
from px.alpine.versions import satisfies, sort_key
from px.debian.archive import BadArchiveError
from px.debian.locking.solver import UnsolvableError
from px.errors import PxError
from px.sandbox.layers.base import load_base_lock
from tests.support.bounded import memory, no_hang

ASCENDING = [
    "0.1",
    "1.0_alpha1",
    "1.0_beta2",
    "1.0_rc1",
    "1.0",
    "1.0-r1",
    "1.0_p1",
    "1.0a",
    "1.0.1",
    "1.2",
    "1.10-r3",
    "2",
]


def test_versions() -> None:
    for older, newer in itertools.combinations(ASCENDING, 2):
        assert sort_key(older) < sort_key(newer), (older, newer)
    with pytest.raises(ValueError, match="not an Alpine version"):
        sort_key("one")
    with pytest.raises(ValueError, match="unknown suffix"):
        sort_key("1_wild")


@pytest.mark.parametrize(
    ("wish", "version", "expected"),
    [
        ("a", "1", True),
        ("a>=1.2", "1.2-r0", True),
        ("a<2", "2", False),
        ("a~1.2", "1.2.9-r1", True),
        ("a~1.2", "1.20", False),
        ("a=1.0-r0", "1.0-r1", False),
    ],
)
def test_wishes(wish: str, version: str, expected: bool) -> None:
    assert parse_wish(wish).accepts(version) is expected


def test_satisfies_knows_every_relation() -> None:
    assert satisfies("2", ">", "1")
    assert satisfies("1", "<=", "1")


def stanza(name: str, version: str = "1.0-r0", depends: str = "", provides: str = "", priority: str = "") -> str:
    rows = ["C:Q1" + "A" * 27 + "=", f"P:{name}", f"V:{version}", "S:1"]
    rows += [f"D:{depends}"] if depends else []
    rows += [f"p:{provides}"] if provides else []
    return "\n".join([*rows, *([f"k:{priority}"] if priority else [])])


def index(*stanzas: str) -> Index:
    return Index(parse_index("\n\n".join(stanzas), "main"))


def test_libraries_are_found_by_what_packages_provide() -> None:
    found = index(
        stanza("python3", depends="so:libc.musl-x86_64.so.1 so:libz.so.1>=1.2"),
        stanza("musl", provides="so:libc.musl-x86_64.so.1=1"),
        stanza("zlib", provides="so:libz.so.1=1.3.1"),
        stanza("old-zlib", provides="so:libz.so.1=1.1"),
    )
    assert list(solve(found, ["python3"])) == ["musl", "python3", "zlib"]


def test_versions_that_are_not_alpines_are_never_new_enough() -> None:
    found = index(
        stanza("a", depends="pc:x>=1.0 y"),
        stanza("strange", provides="pc:x=1.0-dev y=odd"),
        stanza("good", provides="pc:x=1.2"),
    )
    assert list(solve(found, ["a"])) == ["a", "good", "strange"]
    assert not parse_wish("a><1").accepts("1")


def test_the_newest_version_and_the_highest_priority() -> None:
    found = index(
        stanza("a", "1.9-r0", depends="/bin/sh"),
        stanza("a", "1.10-r0", depends="/bin/sh"),
        stanza("dash-binsh", provides="/bin/sh", priority="60"),
        stanza("busybox-binsh", provides="/bin/sh", priority="100"),
    )
    chosen = solve(found, ["a"])
    assert chosen["a"].version == "1.10-r0"
    assert "busybox-binsh" in chosen


def test_what_cannot_be_met() -> None:
    found = index(stanza("a", depends="b"), stanza("b", depends="so:gone.so.1"), stanza("c", depends="!a"))
    with pytest.raises(UnsolvableError, match=r"b depends on so:gone\.so\.1") as caught:
        solve(found, ["a"])
    assert caught.value.chain == ("b", "a")
    with pytest.raises(UnsolvableError, match="there is no package x"):
        solve(found, ["x"])
    with pytest.raises(UnsolvableError, match="c conflicts with a"):
        solve(found, ["a", "c"], drop=["b"])


def test_streams_are_cut_where_they_end() -> None:
    parts = [gzip.compress(text, mtime=0) for text in (b"one", b"two")]
    assert [s.content for s in streams(b"".join(parts))] == [b"one", b"two"]
    assert [s.packed for s in streams(b"".join(parts))] == parts
    with pytest.raises(BadArchiveError, match="ends too early"):
        streams(parts[0][:-3])
    with pytest.raises(BadArchiveError, match="damaged gz"):
        streams(b"nonsense")
    with pytest.raises(BadArchiveError, match="must have a control part"):
        read_apk(gzip.compress(b"", mtime=0))


def test_the_base_says_what_it_needs() -> None:
    with pytest.raises(PxError) as caught:
        load_base_lock("alpine-3.20", "amd64")
    assert caught.value.code == "PX900"
    assert "no pins" in caught.value.what
    assert caught.value.fix[0].endswith(": PX_ALPINE_MIRROR=URL px base lock alpine-3.20")


def test_more_streams_than_a_package_has() -> None:
    """Each stream copied what came after it: the square of their number."""
    with pytest.raises(BadArchiveError, match="too many"), no_hang():
        streams(gzip.compress(b"") * 400_000)


def test_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE", 1 << 20)
    bomb = gzip.compress(bytes(64 << 20))
    with memory(40 << 20), pytest.raises(BadArchiveError, match="too large"):
        streams(bomb)
