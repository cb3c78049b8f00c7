"""Objects: read-only, verified, found by what they are; repaired and collected."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from pathlib import Path

import pytest

from px.errors import PxError
from px.home import CACHES, KEPT, Home
from px.store.files import write_atomically
from px.store.gc import collect, size_of
from px.store.locks import collection_off
from px.store.objects import Draft, Payload, Store
from px.store.tree import TreeWriter, UnsafePathError, differences, remove_tree
from px.store.verify import rebuild_index, verify
from px.warm.hold import acquire
from px.warm.record import record_name


def make_object(store: Store, name: str = "a", content: bytes = b"hello") -> str:
    def make(draft: Draft) -> Payload:
        tree = draft.tree()
        tree.file(f"lib/{name}.py", content)
        tree.file("bin/run", b"#!python\n", 0o755)
        tree.symlink("lib/link", f"{name}.py")
        return {"name": name, "tree": tree.finish()}

    return store.ensure("pkg-build", f"key-{name}-{content.hex()}", make)


def test_an_object_is_read_only(store: Store) -> None:
    oid = make_object(store)
    root = store.path("pkg-build", oid)
    for path in (root, *root.rglob("*")):
        if path.name != "meta.json" and not path.is_symlink():
            assert not path.stat().st_mode & 0o222, path
    assert (root / "tree/bin/run").stat().st_mode & 0o111
    assert not (root / "tree/lib/a.py").stat().st_mode & 0o111


def test_the_oid_is_the_hash_of_payload_json(store: Store) -> None:
    import hashlib

    oid = make_object(store)
    assert hashlib.sha256((store.path("pkg-build", oid) / "payload.json").read_bytes()).hexdigest() == oid


def test_the_umask_changes_nothing(home: Home, tmp_path: Path) -> None:
    oids = []
    for mask in (0o000, 0o077):
        store = Store(Home(tmp_path / f"home-{mask}"))
        before = os.umask(mask)
        try:
            oids.append(make_object(store))
        finally:
            os.umask(before)
        root = store.tree("pkg-build", oids[-1])
        assert stat.S_IMODE((root / "lib/a.py").stat().st_mode) == 0o444
        assert stat.S_IMODE((root / "lib").stat().st_mode) == 0o555
    assert oids[0] == oids[1]


def test_a_file_that_cannot_be_written_is_named() -> None:
    path = Path("/proc/self/uv.lock")  # root may not make files there either
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"")
    assert caught.value.filename == str(path)


def test_a_failed_make_leaves_nothing(store: Store) -> None:
    def make(draft: Draft) -> Payload:
        draft.tree().file("a", b"x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.ensure("layer", "k", make)
    assert list(store.objects()) == []
    assert list(store.home.tmp.iterdir()) == []


def test_a_short_write_is_not_committed(store: Store) -> None:
    def make(draft: Draft) -> Payload:
        tree = draft.tree()
        tree.file("a", b"whole")
        spec = tree.finish()
        os.chmod(draft.path / "tree/a", 0o644)
        (draft.path / "tree/a").write_bytes(b"who")
        return {"tree": spec}

    with pytest.raises(PxError, match="PX802"):
        store.ensure("layer", "k", make)
    assert not list(store.objects())


def void(_: object) -> None:
    """Drop a result."""


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: flip(root / "tree/lib/a.py"),
        lambda root: flip(root / "payload.json"),
        lambda root: (root / "tree/lib").chmod(0o755) or (root / "tree/lib/a.py").unlink(),
        lambda root: (root / "tree/lib").chmod(0o755) or (root / "tree/lib/new").write_text("x"),
        lambda root: (root / "tree/bin/run").chmod(0o444),
    ],
)
def test_verify_finds_damage_and_repairs_it(store: Store, damage: object) -> None:
    oid = make_object(store)
    damage(store.path("pkg-build", oid))  # type: ignore[operator]
    total, found = verify(store, {}, repair=False)
    assert (total, [(d.kind, d.oid) for d in found]) == (1, [("pkg-build", oid)])

    total, found = verify(store, {"pkg-build": lambda s, *_: void(make_object(s))}, repair=True)
    assert [d.repaired for d in found] == [True]
    assert verify(store, {}, repair=False) == (1, [])


def test_the_index_is_only_a_cache(store: Store) -> None:
    oid = make_object(store)
    remove_tree(store.home.index)
    assert store.lookup("pkg-build", "key-a-68656c6c6f") is None
    rebuild_index(store)
    assert store.lookup("pkg-build", "key-a-68656c6c6f") == oid


def use(store: Store, root: Path, *objects: str) -> None:
    root.mkdir()
    (root / "pyproject.toml").write_text("")
    store.home.refs.mkdir(parents=True, exist_ok=True)
    env = {"directory": str(store.home.envs / "e"), "objects": list(objects)}
    record = store.home.refs / record_name(str(root))
    record.write_text(json.dumps({"root": str(root), "envs": {"host": env}}))


def test_gc_keeps_what_is_used_and_removes_the_rest(store: Store, tmp_path: Path) -> None:
    used, unused = make_object(store, "a"), make_object(store, "b")
    profile = store.put("profile", {"p": 1}, refs=(f"pkg-build/{used}",))
    use(store, tmp_path / "project", f"profile/{profile}")
    (store.home.envs / "e").mkdir(parents=True)
    (store.home.envs / "stale").mkdir()

    planned = collect(store, grace=0, dry_run=True)
    assert {g.path.name for g in planned} == {unused, "stale"}
    assert store.has("pkg-build", unused)
    assert collect(store, grace=3600, dry_run=False) == []
    collect(store, grace=0, dry_run=False)
    assert sorted(store.objects()) == [("pkg-build", used), ("profile", profile)]
    assert (store.home.envs / "e").is_dir()
    assert not (store.home.envs / "stale").exists()


def test_a_dry_run_waits_for_no_builder(store: Store) -> None:
    oid = store.put("runtime", {"a": 1})
    # A builder holds the lock for as long as the test runs: a collection would wait for ever.
    with collection_off(store.home):
        assert [g.path.name for g in collect(store, grace=0, dry_run=True)] == [oid]
        assert acquire(store.home.locks / "gc", wait=False) is None
    assert store.has("runtime", oid)


def test_a_dry_run_is_not_disturbed_by_what_goes_away_meanwhile(store: Store) -> None:
    assert size_of(store.home.root / "gone") == 0


def test_gc_forgets_a_project_that_is_gone(store: Store, tmp_path: Path) -> None:
    oid = make_object(store)
    use(store, tmp_path / "project", f"pkg-build/{oid}")
    remove_tree(tmp_path / "project")
    collect(store, grace=0, dry_run=False)
    assert not list(store.objects())
    assert not list(store.home.refs.iterdir())


def test_gc_removes_a_record_that_no_px_looks_for(store: Store, tmp_path: Path) -> None:
    """Older ones gave it another name: what it speaks of is built again, and has a record of its own then."""
    oid = make_object(store)
    use(store, tmp_path / "project", f"pkg-build/{oid}")
    (record,) = store.home.refs.iterdir()
    record.rename(record.with_name("r.json"))
    assert {g.path.name for g in collect(store, grace=0, dry_run=False)} == {"r.json", oid}
    assert not list(store.home.refs.iterdir())


def test_gc_empties_every_cache_but_what_is_known_of_the_machine(store: Store) -> None:
    for name in CACHES:
        (store.home.cache(name) / "entry").mkdir(parents=True)
    other = store.home.root / "cache" / "of-an-older-px" / "entry"
    other.mkdir(parents=True)
    assert collect(store, grace=3600, dry_run=False) == []
    found = {g.path for g in collect(store, grace=0, dry_run=False)}
    assert found == {other, *(store.home.cache(name) / "entry" for name in CACHES if name not in KEPT)}
    assert (store.home.cache("engines") / "entry").is_dir()


def test_gc_spares_an_env_that_a_process_runs_in(store: Store) -> None:
    env = store.home.envs / "busy"
    env.mkdir(parents=True)
    fd = acquire(env.parent / ".locks" / "busy", shared=True)
    assert collect(store, grace=0, dry_run=False) == []
    assert fd is not None
    os.close(fd)
    assert [g.path for g in collect(store, grace=0, dry_run=False)] == [env]


def test_use_renews_the_grace(store: Store) -> None:
    oid = make_object(store)
    old = time.time() - 10_000
    os.utime(store.path("pkg-build", oid) / "meta.json", (old, old))
    assert [g.path.name for g in collect(store, grace=5000, dry_run=True)] == [oid]
    make_object(store)
    assert collect(store, grace=5000, dry_run=True) == []


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "", "a/.", "a\0b"])
def test_a_tree_refuses_paths_that_leave_it(tmp_path: Path, path: str) -> None:
    with pytest.raises(UnsafePathError):
        TreeWriter(tmp_path / "t").file(path, b"")
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_a_tree_refuses_to_write_through_a_link(tmp_path: Path) -> None:
    tree = TreeWriter(tmp_path / "t")
    tree.symlink("a", "/tmp")
    with pytest.raises(UnsafePathError):
        tree.file("a/b", b"")
    with pytest.raises(UnsafePathError):
        tree.file("a", b"")


def test_a_tree_of_any_names_round_trips(tmp_path: Path) -> None:
    tree = TreeWriter(tmp_path / "t")
    tree.file("Főtanúsítvány.crt", b"x")
    tree.file("d/f", [b"ab", b"cd"], 0o755)
    tree.hardlink("d/g", "d/f")
    spec = tree.finish()
    kinds = [e[:2] for e in spec if isinstance(e, list)]
    assert kinds == [["f", "Főtanúsítvány.crt"], ["d", "d"], ["f", "d/f"], ["h", "d/g"]]
    assert list(differences(tmp_path / "t", spec)) == []  # type: ignore[arg-type]
    remove_tree(tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(store: Store, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    """As Lustre and NFS answer where locks are turned off; no such file system can be mounted here."""

    def refuse(*_: object) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(PxError) as caught, store.lock("thing", "a thing"):
        pass
    assert caught.value.code == "PX812"
    assert os.strerror(reason) in caught.value.what
