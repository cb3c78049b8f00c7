"""What is fetched and what is built go on side by side, and end together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from px.env.artifacts import Artifact
from px.env.packages import Package, Packages
from px.errors import PxError
from px.home import Home
from px.http import Download
from px.project.context import Context
from px.store.canonical import Value
from px.store.objects import Store
from px.store.sources import StoppedError, ensure_source

WHEEL = Artifact("fetched", "1", "wheel", "https://example.org/fetched-1-py3-none-any.whl", sha256="0" * 64)
SDIST = Artifact("built", "1", "sdist", "built-1.tar.gz", sha256="1" * 64, filename="built-1.tar.gz")


class Builder:
    """Fails, or does what the test says, and notes what it was told to begin with."""

    def __init__(self, build: Callable[[], None], at_once: int = 1):
        self.do, self.begun, self.at_once = build, list[str](), at_once

    def identity(self, _: Artifact) -> list[Value]:
        return []

    def begin(self, artifacts: Sequence[Artifact]) -> None:
        self.begun += [artifact.name for artifact in artifacts]

    def learn(self, artifact: Artifact, error: PxError) -> bool:
        return False

    def build(self, artifact: Artifact, source: Path, out: Path) -> Path:
        self.do()
        raise PxError("PX903", problem=f"{artifact.label} could not be built")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Home(tmp_path / "home"), offline=True)


def packages(store: Store, builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "app"\n')
    made = Packages(Context(store, tmp_path), builder)
    monkeypatch.setattr(made, "_source", lambda artifact, scratch: tmp_path)
    return made


def test_a_transfer_ends_when_the_command_does(store: Store) -> None:
    class Http:
        def fetch(self, what: Download, destination: Path) -> int:
            destination.write_bytes(b"x")
            what.on_bytes(1)
            store.stopping = True
            what.on_bytes(1)
            raise AssertionError("it went on")

    seen: list[int] = []
    with pytest.raises(StoppedError):
        ensure_source(store, cast("Any", Http()), Download("https://example.org/x", "0" * 64, on_bytes=seen.append))
    assert seen == [1]
    assert not list(store.objects())
    assert not list(store.home.tmp.iterdir())


def test_a_failed_build_stops_what_is_fetched_beside_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(lambda: None)
    made = packages(store, builder, tmp_path, monkeypatch)
    stopped: list[bool] = []

    def fetch_for_ever(_: list[Artifact]) -> list[Package]:
        while not store.stopping:
            time.sleep(0.001)
        stopped.append(True)
        raise StoppedError

    monkeypatch.setattr(made, "_wheels", fetch_for_ever)
    with pytest.raises(PxError, match="PX903"):
        made.ensure([WHEEL, SDIST])
    assert stopped == [True]
    assert builder.begun == ["built"]
    assert not store.stopping


def test_a_failed_download_is_said_before_the_next_build(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[bool] = []

    def fail(_: list[Artifact]) -> list[Package]:
        failed.append(True)
        raise PxError("PX202", package="fetched", artifact="fetched-1-py3-none-any.whl")

    made = packages(store, Builder(lambda: None), tmp_path, monkeypatch)
    built: list[str] = []

    def build(artifact: Artifact) -> Package:
        built.append(artifact.name)
        while not failed:
            time.sleep(0.001)
        time.sleep(0.5)
        return Package(artifact.name, "1", "0")

    monkeypatch.setattr(made, "_wheels", fail)
    monkeypatch.setattr(made, "_built", build)
    with pytest.raises(PxError, match="PX202"):
        made.ensure([WHEEL, SDIST, Artifact("other", "1", "sdist", "other-1.tar.gz", sha256="2" * 64)])
    assert built == ["built"]


def test_builds_run_side_by_side(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [replace(SDIST, name=name, sha256=name * 64) for name in "ab"]
    met = threading.Barrier(2, timeout=60)

    def meet() -> None:
        met.wait()

    with pytest.raises(PxError, match="could not be built"):
        packages(store, Builder(meet, at_once=2), tmp_path, monkeypatch).ensure(others)
    assert not met.broken
