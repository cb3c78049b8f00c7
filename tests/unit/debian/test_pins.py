"""The file of a project's pins, and what newer versions bring with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from px.debian.lock import BaseLock, Closure
from px.debian.locking.index import Index
from px.debian.locking.pins import changes, encode_pins, find_pins, newer, read_pins, restricted, take
from px.errors import PxError
from px.sandbox.layers.base import load_base_lock
from tests.support.debian import make_lock, pin, stanza


def lock_of(*packages: tuple[str, str]) -> BaseLock:
    return make_lock([pin(name, f"{name} {version}".encode(), version=version) for name, version in packages])


def test_a_file_of_two_architectures_comes_back(tmp_path: Path) -> None:
    locks = {name: restricted(load_base_lock("debian-12", name), ["postgres"]) for name in ("amd64", "arm64")}
    path = tmp_path / "pins.json"
    path.write_bytes(encode_pins(locks))
    assert read_pins(path) == locks
    assert find_pins(path, "debian-12", "arm64").pins == path
    assert encode_pins(read_pins(path)) == path.read_bytes()
    assert len(path.read_text().splitlines()) > len(locks["amd64"].packages) * 2
    for base, architecture in (("debian-13", "amd64"), ("debian-12", "s390x")):
        with pytest.raises(PxError, match="PX950"):
            find_pins(path, base, architecture)


@pytest.mark.parametrize(
    ("place", "word"),
    [
        (0, "1 0"),
        (2, "../../../etc/x.deb"),
        (2, "/x.deb"),
        (3, "10"),
        (3, -1),
        (3, True),
        (4, "../../x"),
        (4, "0" * 63),
    ],
)
def test_a_hostile_row_is_refused(place: int, word: object, tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    path.write_bytes(encode_pins({"amd64": lock_of(("a", "1"))}))
    raw = json.loads(path.read_bytes())
    raw["locks"][0]["packages"]["a"][place] = word
    path.write_text(json.dumps(raw))
    with pytest.raises(PxError, match="PX950"):
        read_pins(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pins": 2, "locks": []}', '{"pins": 1, "locks": [1]}', "\xff"])
def test_a_file_that_is_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(PxError, match="PX950"):
        read_pins(path)
    with pytest.raises(PxError, match="no such file"):
        read_pins(tmp_path / "other")


INDEX = Index(
    [
        ("bookworm", stanza("app", "2", Depends="lib (>= 2), other")),
        ("bookworm", "\n\n".join([stanza("other", "2"), stanza("old", "1")])),
        ("bookworm-security", stanza("lib", "2", Source="lib-src")),
        ("bookworm-security", stanza("lib-dev", "2", Source="lib-src (2)")),
    ]
)
OLD = lock_of(("app", "1"), ("lib", "1"), ("lib-dev", "1"), ("other", "1"), ("old", "3"))
NEW = lock_of(("app", "2"), ("lib", "2"), ("lib-dev", "2"), ("other", "2"), ("old", "1"))


def versions(lock: BaseLock) -> dict[str, str]:
    return {name: p.version for name, p in lock.packages.items()}


def test_security_fixes_come_first_and_older_versions_are_not_newer() -> None:
    found = newer(changes(OLD, NEW, INDEX))
    assert [(c.name, c.security) for c in found] == [("lib", True), ("lib-dev", True), ("app", False), ("other", False)]


def test_one_package_brings_what_it_needs_and_nothing_else() -> None:
    assert versions(take(OLD, NEW, INDEX, ["app"])) == {
        "app": "2",
        "lib": "2",
        "lib-dev": "2",
        "other": "1",
        "old": "3",
    }
    assert versions(take(OLD, NEW, INDEX, ["lib-dev"])) == versions(OLD) | {"lib": "2", "lib-dev": "2"}


def test_the_snapshot_of_what_is_kept_is_remembered() -> None:
    done = take(OLD, replace(NEW, date="20270101T000000Z"), INDEX, ["other"])
    assert (done.date, done.older) == ("20270101T000000Z", (OLD.date,))


def test_a_capability_that_only_the_new_lock_has() -> None:
    new = replace(NEW, capabilities={"more": Closure(("app",), ())}, base=())
    old = replace(OLD, base=("lib", "lib-dev", "old", "other"))
    old = replace(old, packages={n: p for n, p in old.packages.items() if n != "app"})
    done = take(old, new, INDEX, ["app"])
    assert done.capabilities == new.capabilities
    assert versions(done) == {"app": "2", "lib": "2", "lib-dev": "2", "old": "3", "other": "1"}
