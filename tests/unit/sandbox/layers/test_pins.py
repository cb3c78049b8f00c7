"""Finding a base by its name, and what is said when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.debian import lock as locks
from px.errors import PxError
from px.sandbox.layers import base as bases
from px.sandbox.layers.base import known_bases, load_base_lock
from px.sandbox.layers.system import closure
from tests.support.debian import make_lock, pin

if TYPE_CHECKING:
    from pathlib import Path


def test_known_bases_default_first() -> None:
    assert known_bases()[:2] == ("debian-12", "debian-13")


@pytest.mark.parametrize("name", known_bases())
def test_the_python_of_a_base(name: str) -> None:
    lock = load_base_lock(name, "amd64")
    python = bases._python(lock.pinned(lock.base))
    assert f"py{python.major}{python.minor}" == lock.variant
    assert python.full.startswith(f"{python.major}.{python.minor}.")


def test_an_unknown_base_gets_the_nearest_name() -> None:
    with pytest.raises(PxError) as caught:
        load_base_lock("debain-13", "amd64")
    assert caught.value.code == "PX900"
    assert "debian-13" in caught.value.fix[0]
    assert any("debian-12, debian-13" in line for line in caught.value.why)


def test_a_base_that_has_no_lock_for_an_architecture() -> None:
    with pytest.raises(PxError, match="PX900") as caught:
        load_base_lock("debian-12", "s390x")
    assert "s390x" in caught.value.what


def test_locks_from_another_directory_are_added_to_those_of_px(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, shipped = make_lock([pin("a", b"1")]), load_base_lock("debian-13", "amd64")
    (tmp_path / "debian-12-amd64.json").write_bytes(locks.encode(lock))
    monkeypatch.setenv("PX_BASES", str(tmp_path))
    assert known_bases() == ("debian-12", "debian-13")
    assert load_base_lock("debian-12", "amd64") == lock
    assert load_base_lock("debian-13", "amd64") == shipped


@pytest.mark.parametrize("text", ["", "{}", '{"format": 9}', "[]"])
def test_a_lock_that_cannot_be_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "debian-12-amd64.json").write_text(text)
    monkeypatch.setenv("PX_BASES", str(tmp_path))
    with pytest.raises(PxError) as caught:
        load_base_lock("debian-12", "amd64")
    assert "cannot be read" in caught.value.what


def test_a_capability_without_pins() -> None:
    with pytest.raises(PxError) as caught:
        closure(load_base_lock("debian-12", "amd64"), "nosuch")
    assert caught.value.code == "PX901"
    assert "nosuch" in caught.value.what
