"""When something is wrong: the package is named, the store stays whole, and trying again works."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from px.debian.download import ensure_packages
from px.errors import PxError
from px.platforms import host_architecture
from px.sandbox.layers.base import Base, ensure_base, load_base_lock
from px.sandbox.layers.system import ensure_system_layer
from px.store.objects import Store
from px.store.sources import ensure_source, find_source
from tests.support.debian import Mirror, make_deb, make_lock, pin, serving, tar_member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.debian.lock import BaseLock

GOOD = make_deb("good", [tar_member("./usr/share/good/data", b"x" * 5000)])
OTHER = make_deb("other", [tar_member("./usr/share/other/data", b"y" * 5000)])


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    with serving(Mirror()) as found:
        monkeypatch.setenv("PX_DEBIAN_MIRROR", found.url)
        monkeypatch.setenv("PX_HTTP_TIMEOUT", "1")
        yield found


@pytest.fixture
def lock(mirror: Mirror) -> BaseLock:
    pins = [pin("good", GOOD), pin("other", OTHER)]
    mirror.files |= {pins[0].path: GOOD, pins[1].path: OTHER}
    return make_lock(pins)


def whole(store: Store) -> bool:
    leftovers = list(store.home.tmp.iterdir()) if store.home.tmp.is_dir() else []
    return not leftovers and all(not store.problems(kind, oid) for kind, oid in store.objects())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("404", "404"),
        ("500", "500"),
        ("slow", "timed out"),
        ("truncated", "connection broke|bytes arrived|IncompleteRead"),
        ("flipped", "not the one that the base's lock pins"),
    ],
)
def test_a_mirror_that_misbehaves(fault: str, said: str, mirror: Mirror, lock: BaseLock, store: Store) -> None:
    path = lock.packages["other"].path
    mirror.faults[path] = fault
    with pytest.raises(PxError) as caught:
        ensure_packages(store, lock, lock.pinned(lock.base))
    text = str(caught.value)
    assert caught.value.code == "PX900"
    assert "other 1.0-1" in text
    assert __import__("re").search(said, text), text
    assert whole(store)
    assert find_source(store, lock.packages["other"].sha256) is None
    mirror.faults.clear()
    assert set(ensure_packages(store, lock, lock.pinned(lock.base))) == {"good", "other"}
    assert whole(store)


def test_what_was_downloaded_is_not_asked_for_again(mirror: Mirror, lock: BaseLock, store: Store) -> None:
    ensure_packages(store, lock, lock.pinned(lock.base))
    mirror.asked.clear()
    ensure_packages(Store(store.home, offline=True), lock, lock.pinned(lock.base))
    assert mirror.asked == []


def test_offline_says_what_is_missing(lock: BaseLock, store: Store, mirror: Mirror) -> None:
    with pytest.raises(PxError) as caught:
        ensure_packages(Store(store.home, offline=True), lock, lock.pinned(lock.base))
    assert caught.value.code == "PX900"
    assert "2 of its packages are not in the store, and px is offline" in caught.value.what
    assert "good 1.0-1" in str(caught.value)
    assert mirror.asked == []


def test_security_updates_come_from_their_own_archive(mirror: Mirror, store: Store) -> None:
    package = pin("good", GOOD, suite="bookworm-security")
    mirror.files[package.path] = GOOD
    lock = make_lock([package])
    assert set(ensure_packages(store, lock, lock.pinned(lock.base))) == {"good"}


HOSTILE = {
    "above": ([tar_member("../evil", b"x")], "leaves the tree"),
    "absolute": ([tar_member("./usr/l", kind=tarfile.LNKTYPE, to="/etc/shadow")], "absolute"),
    "elsewhere": ([tar_member("./usr/l", kind=tarfile.SYMTYPE, to="/root/.ssh/id")], "no package has files"),
    "device": ([tar_member("./dev/mem", kind=tarfile.CHRTYPE)], "character device"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_package(name: str, mirror: Mirror, store: Store) -> None:
    members, said = HOSTILE[name]
    content = make_deb(name, members)
    lock = make_lock([pin("good", GOOD), pin(name, content)])
    mirror.files |= {lock.packages["good"].path: GOOD, lock.packages[name].path: content}
    with pytest.raises(PxError) as caught:
        ensure_base(store, lock)
    assert caught.value.code == "PX903"
    assert f"{name} 1.0-1" in caught.value.what
    assert said in caught.value.what
    assert whole(store)
    assert [kind for kind, _ in store.objects() if kind != "source"] == []


def test_a_byte_that_flips_in_the_store(warm_store: Store, bookworm: Base, store: Store, mirror: Mirror) -> None:
    """The real base from real packages, one of which the disk has damaged."""
    lock = load_base_lock("debian-12", host_architecture())
    _copy_sources(warm_store, store, lock, lock.base, mirror)
    victim = lock.packages["tar"]
    path = find_source(store, victim.sha256)
    assert path is not None
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    with pytest.raises(PxError) as caught:
        ensure_base(Store(store.home, offline=True), lock)
    assert caught.value.code == "PX903"
    assert victim.label in caught.value.what
    assert whole(store)
    mirror.asked.clear()
    base = ensure_base(store, lock)
    assert mirror.asked == [victim.path]
    assert base.oid == bookworm.oid


def _copy_sources(source: Store, destination: Store, lock: BaseLock, names: tuple[str, ...], mirror: Mirror) -> None:
    from px.http import Download, Http

    http = Http()
    for package in lock.pinned(names):
        found = find_source(source, package.sha256)
        assert found is not None
        mirror.files[package.path] = found.read_bytes()
        ensure_source(destination, http, Download(f"{mirror.url}/{package.path}", package.sha256, package.size))


def test_a_capability_that_the_lock_does_not_have(warm_store: Store, bookworm: Base) -> None:
    without = replace(bookworm, lock=replace(bookworm.lock, capabilities={}))
    with pytest.raises(PxError) as caught:
        ensure_system_layer(warm_store, without, ["postgres"])
    assert caught.value.code == "PX901"


def test_capabilities_that_need_nothing_have_no_layer(warm_store: Store, bookworm: Base) -> None:
    assert ensure_system_layer(warm_store, bookworm, []) is None
    assert ensure_system_layer(warm_store, bookworm, ["ffi"]) is None
