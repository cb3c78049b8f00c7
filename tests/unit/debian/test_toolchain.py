"""The compiler set in parts: nothing is lost between them, whatever the base and the architecture."""

from __future__ import annotations

import re

import pytest

from px.debian import toolchain
from px.debian.bytecode import is_test
from px.debian.lock import BaseLock
from px.platforms import ARCHITECTURES
from px.sandbox.layers.base import load_base_lock

LOCKS = [(base, architecture) for base in ("debian-12", "debian-13") for architecture in ("amd64", "arm64")]


@pytest.fixture(params=LOCKS, ids="-".join)
def lock(request: pytest.FixtureRequest) -> BaseLock:
    return load_base_lock(*request.param)


def parts(lock: BaseLock) -> dict[str, tuple[frozenset[str], toolchain.Rules | None]]:
    triplet = ARCHITECTURES[lock.architecture].triplet
    return {part: toolchain.part_of(lock.compiler, part, triplet) for part in toolchain.ALL}


def test_together_they_are_the_whole_set(lock: BaseLock) -> None:
    found = parts(lock)
    assert frozenset().union(*(names for names, _ in found.values())) == frozenset(lock.compiler)
    assert all(names for names, _ in found.values())


def test_what_the_first_part_cuts_short_comes_whole_with_the_others(lock: BaseLock) -> None:
    found = parts(lock)
    rest = frozenset().union(*(found[part][0] for part in toolchain.ALL[1:]))
    assert found["compiler"][1] is not None
    assert all(rules is None for part, (_, rules) in found.items() if part != "compiler")
    cut = {n for n in found["compiler"][0] if re.fullmatch(r"gcc-\d+(-x86-64.*|-aarch64.*)?|libpython3\.\d+-dev", n)}
    assert len(cut) >= 2
    assert cut <= rest


def test_every_name_of_the_cplusplus_compiler_has_a_stand_in(lock: BaseLock) -> None:
    names, rules = parts(lock)["compiler"]
    assert rules is not None
    triplet = ARCHITECTURES[lock.architecture].triplet
    (version,) = {found[1] for n in lock.compiler if (found := re.fullmatch(r"g\+\+-(\d+)", n))}
    assert not [n for n in names if n.startswith("g++")]
    assert ("usr/bin/c++", "/etc/alternatives/c++") in rules.links
    expected = {"usr/bin/g++", f"usr/bin/g++-{version}", f"usr/bin/{triplet}-g++"}
    assert expected | {f"usr/bin/{triplet}-g++-{version}"} <= set(rules.stand_ins)
    for program in ("cc1plus", "lto1"):
        assert f"usr/libexec/gcc/{triplet}/{version}/{program}" in rules.stand_ins
    assert f'echo "$0" >>{toolchain.WANTED}\n' in toolchain.STAND_IN


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("/usr/bin/ld: cannot find -lstdc++: No such file or directory", True),
        ("/usr/bin/ld: cannot find libasan_preinit.o: No such file or directory", True),
        ("/usr/bin/ld: cannot find -lpython3.11: No such file or directory", True),
        ("/usr/bin/ld: cannot find -lpq: No such file or directory", False),
        ("fatal error: libpq-fe.h: No such file or directory", False),
    ],
)
def test_what_the_linker_lacks(line: str, lacks: bool) -> None:
    assert bool(toolchain.MISSING.search(line)) is lacks


def test_only_directories_of_tests_count() -> None:
    assert is_test("lib/numpy/tests/test_core.py")
    assert is_test("usr/lib/python3.11/unittest/test/__main__.py")
    assert not is_test("lib/werkzeug/test.py")
    assert not is_test("lib/numpy/testing/overrides.py")
    assert not is_test("lib/pytest/__init__.py")
