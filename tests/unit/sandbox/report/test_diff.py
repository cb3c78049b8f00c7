"""What ``px sandbox diff`` says about two sandboxes, for people and for machines."""

from __future__ import annotations

import json

from px.sandbox.report.contents import PYTHON, SYSTEM, Contents, Package, Weight
from px.sandbox.report.diff import Side, difference, render, signed


def side(name: str, *packages: Package, capabilities: tuple[str, ...] = (), sbx: str = "") -> Side:
    weights = tuple(Weight("env", p.kind, p.name, p.size) for p in packages)
    reasons = {c: (f"file: {c} needs it",) for c in capabilities}
    ids = {"sbx_id": sbx or name * 8}
    return Side(name, f"commit {name}", "debian-12", "amd64", capabilities, ids, Contents(packages, weights), reasons)


OLD = side("a", Package(PYTHON, "numpy", "1.0", 10_000_000, ()), Package(PYTHON, "old", "1", 1000, ()))
NEW = side(
    "b",
    Package(PYTHON, "numpy", "2.0", 12_500_000, ()),
    Package(SYSTEM, "libpq5", "15.1", 300_000, ("PostgreSQL",)),
    capabilities=("postgres",),
)


def test_what_was_added_removed_and_updated_and_what_it_weighs() -> None:
    text = render(difference(OLD, NEW))
    assert text.splitlines() == [
        "A: commit a",
        "   debian-12 (amd64), 10.0 MB",
        "   sbx_id aaaaaaaa",
        "B: commit b",
        "   debian-12 (amd64), 12.8 MB",
        "   sbx_id bbbbbbbb",
        "",
        "Capabilities:",
        "  + postgres  (file: postgres needs it)",
        "",
        "Added (1, +300.0 kB):",
        "  system  libpq5  15.1   +300.0 kB",
        "",
        "Removed (1, -1.0 kB):",
        "  python  old  1     -1.0 kB",
        "",
        "Updated (1, +2.5 MB):",
        "  python  numpy  1.0 → 2.0     +2.5 MB",
        "",
        "Size: 10.0 MB → 12.8 MB (+2.8 MB)",
    ]


def test_backwards_is_the_opposite() -> None:
    there, back = difference(OLD, NEW), difference(NEW, OLD)
    assert there.weight == -back.weight
    assert there.added_capabilities == back.removed_capabilities == ("postgres",)
    assert {c.name for c in there.of("added")} == {c.name for c in back.of("removed")} == {"libpq5"}


def test_the_same_is_said_to_be_the_same() -> None:
    found = difference(OLD, OLD)
    assert found.is_same
    assert "The two are the same sandbox." in render(found)
    assert found.as_json()["changes"] == []


def test_another_build_of_one_version_is_no_update() -> None:
    rebuilt = side("a", Package(PYTHON, "numpy", "1.0", 10_000_001, ()), Package(PYTHON, "old", "1", 1000, ()))
    found = difference(OLD, rebuilt)
    assert [c.what for c in found.changes] == ["changed"]
    assert "The same version, with other content (1, +1 byte):" in render(found)
    assert not found.is_same


def test_as_json() -> None:
    found = json.loads(json.dumps(difference(OLD, NEW).as_json()))
    assert found["capabilities"]["added"] == {"postgres": ["file: postgres needs it"]}
    assert found["before"]["layers"] == [{"what": "env", "size": 10_001_000}]
    assert {(c["name"], c["what"], c["weight"]) for c in found["changes"]} == {
        ("numpy", "updated", 2_500_000),
        ("libpq5", "added", 300_000),
        ("old", "removed", -1000),
    }


def test_signed_sizes() -> None:
    assert [signed(n) for n in (0, 1, -1, 999_950, -1_500_000)] == [
        "±0 bytes",
        "+1 byte",
        "-1 byte",
        "+1.0 MB",
        "-1.5 MB",
    ]
