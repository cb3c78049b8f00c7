"""Base locks: the file format, and what the shipped ones must be."""

from __future__ import annotations

import re
import tomllib

import pytest

from px.debian import lock as locks
from px.debian.lock import BaseLock, Closure
from px.debian.locking.relock import CAPABILITIES, differences, load_capability_seeds, load_seeds
from px.sandbox.layers.base import SHIPPED, known_bases, load_base_lock
from tests.support.debian import make_lock, pin

SHIPPED_LOCKS = [(name, architecture) for name, s in load_seeds().items() for architecture in s.architectures]


@pytest.fixture(params=SHIPPED_LOCKS, ids="-".join)
def shipped(request: pytest.FixtureRequest) -> BaseLock:
    return load_base_lock(*request.param)


def test_encoding() -> None:
    lock = make_lock([pin("b", b"1"), pin("a", b"22")], {"x": Closure(("b",), ())})
    assert locks.decode(locks.encode(lock)) == lock
    assert locks.encode(lock) == locks.encode(make_lock([pin("a", b"22"), pin("b", b"1")], {"x": Closure(("b",), ())}))


def test_another_format_is_refused() -> None:
    text = locks.encode(make_lock([])).replace(b'"format": 1', b'"format": 2')
    with pytest.raises(ValueError, match="lock format 2"):
        locks.decode(text)


def test_shipped_locks_are_as_the_tool_writes_them(shipped: BaseLock) -> None:
    path = SHIPPED / locks.file_name(shipped.name, shipped.architecture)
    assert path.read_bytes() == locks.encode(shipped)


def test_shipped_pins_are_whole(shipped: BaseLock) -> None:
    for package in shipped.packages.values():
        assert re.fullmatch(r"[0-9a-f]{64}", package.sha256)
        assert package.size > 0
        assert package.path.startswith("pool/")
        assert package.architecture in (shipped.architecture, "all")
        assert package.suite.startswith(shipped.codename)
    assert re.fullmatch(r"20\d{6}T\d{6}Z", shipped.date)


def test_shipped_sets_name_only_what_is_pinned(shipped: BaseLock) -> None:
    named = {*shipped.base, *shipped.compiler}
    for closure in shipped.capabilities.values():
        named |= {*closure.runtime, *closure.build}
        assert not set(closure.runtime) & set(shipped.base)
    assert named == set(shipped.packages)


def test_every_capability_of_the_table_is_pinned(shipped: BaseLock) -> None:
    table = load_capability_seeds(shipped.name)
    assert set(shipped.capabilities) == set(table)
    for name, wanted in table.items():
        found = shipped.capabilities[name]
        assert set(wanted.runtime) <= {*found.runtime, *shipped.base}, name
        assert set(wanted.build) <= {*found.build, *found.runtime, *shipped.base, *shipped.compiler}, name


def test_bases_have_no_compiler_no_perl_and_no_package_manager(shipped: BaseLock) -> None:
    assert not set(shipped.base) & {"gcc", "cpp", "binutils", "make", "perl-base", "perl", "dpkg", "apt", "debconf"}


def test_both_architectures_have_the_same_python() -> None:
    for name in known_bases():
        versions = {
            p.version
            for architecture in ("amd64", "arm64")
            for p in load_base_lock(name, architecture).packages.values()
            if re.fullmatch(r"libpython3\.\d+-stdlib", p.name)
        }
        assert len(versions) == 1


def test_no_registry_is_written_down() -> None:
    for path in SHIPPED.glob("*.json"):
        assert b"://" not in path.read_bytes()


def test_capability_tables_name_known_bases() -> None:
    raw = tomllib.loads(CAPABILITIES.read_text(encoding="utf-8"))
    bases = {key for row in raw.values() for key in row if key != "summary"}
    assert {"debian-12", "debian-13"} <= bases


def test_differences() -> None:
    old = make_lock([pin("a", b"1"), pin("b", b"1"), pin("same", b"1")], {"x": Closure(("b",), ())})
    new = make_lock([pin("a", b"2", version="2.0", suite="bookworm-security"), pin("c", b"1"), pin("same", b"1")])
    assert differences(old, old) == []
    assert differences(old, new) == [
        "~ a 1.0-1 -> 2.0 (bookworm-security)",
        "- b 1.0-1",
        "+ c 1.0-1 (bookworm)",
        "  base: +c -b",
        "  x runtime: -b",
    ]
    assert differences(None, new)[0] == "+ a 2.0 (bookworm-security)"
