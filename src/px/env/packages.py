"""From the lock's artifacts to ``pkg-build`` objects: fetched and unpacked in parallel, each once per machine.

What only fetching and unpacking need is imported where they begin: packages are looked up far more often than made.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from px import console
from px.env import hostbuild
from px.env.artifacts import resolve_path
from px.env.credentials import Credentials
from px.errors import PxError
from px.store.canonical import oid_of
from px.store.sources import ensure_source, find_source, source_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from px.env.artifacts import Artifact
    from px.http import Http
    from px.project.context import Context
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload

DOWNLOADS = 8


@dataclass(frozen=True)
class Package:
    """A package as it is in a profile."""

    name: str
    version: str
    oid: str
    from_sdist: bool = False


class Builder(Protocol):
    """What makes a wheel of a package that has none: the host's compiler, or a builder sandbox."""

    @property
    def at_once(self) -> int:
        """How many builds may run side by side."""

    def identity(self, artifact: Artifact) -> list[Value]:
        """Everything but the source that the result depends on."""

    def begin(self, artifacts: Sequence[Artifact]) -> None:
        """Get ready for these, in a thread of its own; what fails here fails again in ``build``, and is said there."""

    def build(self, artifact: Artifact, source: Path, out: Path) -> Path:
        """Build the wheel of an archive or directory into ``out``."""

    def learn(self, artifact: Artifact, error: PxError) -> bool:
        """Whether a failure says what the build needs, and it can have that: then its identity is another one now."""


class Packages:
    """Makes the pkg-builds of one project, for one target."""

    def __init__(
        self,
        context: Context,
        builder: Builder,
        on_wheels: Callable[[Sequence[Package]], object] = lambda _: None,
    ):
        """``on_wheels`` is given the packages that have wheels as soon as these are there."""
        self.store = context.store
        self.root = context.root
        self.settings = context.settings
        self.builder = builder
        self.on_wheels = on_wheels

    def ensure(self, artifacts: Iterable[Artifact]) -> tuple[Package, ...]:
        """The pkg-build of every artifact, sorted by name; what is not in the store is fetched and made."""
        found: dict[str, Package] = {}
        absent: list[Artifact] = []
        for artifact in artifacts:
            oid = self.store.lookup("pkg-build", self._key(artifact)) if artifact.kind != "directory" else None
            if oid is None:
                absent.append(artifact)
            else:
                found[artifact.name] = self._package(artifact, oid)
        if absent:
            found.update((p.name, p) for p in self._make_all(absent))
        return tuple(found[name] for name in sorted(found))

    def _package(self, artifact: Artifact, oid: str) -> Package:
        version = artifact.version or str(self.store.payload("pkg-build", oid)["version"])
        return Package(artifact.name, version, oid, from_sdist=artifact.kind != "wheel")

    def _key(self, artifact: Artifact) -> str:
        """What a pkg-build is made from: for a wheel its hash, for the rest also what builds it."""
        if artifact.kind == "wheel":
            return artifact.sha256
        source: list[Value] = [artifact.sha256, artifact.location, artifact.commit, artifact.subdirectory]
        return oid_of("build-inputs", source + self.builder.identity(artifact))

    def _make_all(self, artifacts: list[Artifact]) -> list[Package]:
        """Wheels are fetched and unpacked beside what has to be built, and the builder's tools beside both."""
        wheels = [a for a in artifacts if a.kind == "wheel"]
        others = [a for a in artifacts if a.kind != "wheel"]
        if not others:
            return self._wheels(wheels)
        from concurrent.futures import ThreadPoolExecutor

        try:
            with ThreadPoolExecutor(2) as beside:
                beside.submit(self.builder.begin, others)
                return self._beside(beside.submit(self._wheels, wheels), others)
        finally:
            self.store.stopping = False

    def _beside(self, fetched: Future[list[Package]], others: list[Artifact]) -> list[Package]:
        if min(len(others), self.builder.at_once) > 1:
            return self._side_by_side(fetched, others)
        made = []
        try:
            for artifact in others:
                if fetched.done():
                    fetched.result()  # one failure is enough: do not build the rest
                made.append(self._built(artifact))
            return made + fetched.result()
        except BaseException:
            self.store.stopping = True  # or an interruption would have to wait for every download
            raise

    def _side_by_side(self, fetched: Future[list[Package]], others: list[Artifact]) -> list[Package]:
        """Build several at once; the first failure, or an interruption, ends the rest."""
        import threading
        import time
        from concurrent.futures import ThreadPoolExecutor, as_completed

        from px.process import tidy_end
        from px.warm.supervise import end_of_threads

        threads: list[int] = []
        with tidy_end(), ThreadPoolExecutor(
            min(len(others), self.builder.at_once), initializer=lambda: threads.append(threading.get_ident())
        ) as pool:  # fmt: skip
            futures = [pool.submit(self._built, artifact) for artifact in others]
            try:
                everything: list[Future[Any]] = [*futures, fetched]
                for done in as_completed(everything):
                    done.result()
            except BaseException:
                self.store.stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                # Again and again: a build may just now begin its next step.
                while not all(future.done() for future in futures):
                    end_of_threads(threads)
                    time.sleep(0.02)
                raise
        return [future.result() for future in futures] + fetched.result()

    def _wheels(self, wheels: list[Artifact]) -> list[Package]:
        if not wheels:
            return []
        from concurrent.futures import ThreadPoolExecutor

        total = sum(a.size or 0 for a in wheels)
        label = f"Fetching {console.counted(len(wheels), 'package')}"
        with console.progress(label, total) as bar, ThreadPoolExecutor(DOWNLOADS) as pool:
            futures = [pool.submit(self._wheel, artifact, bar) for artifact in wheels]
            try:
                made = [future.result() for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)  # one failure is enough: do not fetch the rest
                raise
        self.on_wheels(made)
        return made

    def _wheel(self, artifact: Artifact, bar: console.Progress) -> Package:
        path = self.fetch(artifact, bar)

        def make(draft: Draft) -> Payload:
            from px.env.wheel import WheelOf, unpack_wheel

            draft.refs.append(source_ref(artifact.sha256, path.stat().st_size))
            draft.notes["filename"] = artifact.filename
            wheel_of = WheelOf(artifact.name, artifact.version, artifact.sha256, artifact.filename)
            return unpack_wheel(path, draft.tree(), wheel_of)

        return self._package(artifact, self.store.ensure("pkg-build", self._key(artifact), make, label=artifact.label))

    def fetch(self, artifact: Artifact, bar: console.Progress | None = None) -> Path:
        """The artifact's file, from the store, this disk or the index; its hash is always the lock's."""
        kept = find_source(self.store, artifact.sha256)
        if kept is not None:
            return kept
        local = resolve_path(self.root, artifact.location)
        if local is not None:
            return self._take(artifact, local)
        if self.store.offline:
            raise PxError("PX202", package=artifact.label, artifact=artifact.filename)
        from px.http import Download, FetchError

        url = self._credentials.authorize(artifact.location)
        try:
            on_bytes = (lambda _: None) if bar is None else bar.advance
            what = Download(url, artifact.sha256, artifact.size, on_bytes)
            return ensure_source(self.store, self._client, what)
        except FetchError as e:
            if e.actual_sha256 is not None:
                raise self._mismatch(artifact, e.actual_sha256) from e
            raise PxError("PX201", package=artifact.label, artifact=artifact.filename, reason=e.reason) from e

    @cached_property
    def _credentials(self) -> Credentials:
        return Credentials(self.settings)

    @cached_property
    def _client(self) -> Http:
        from px.http import Http

        return Http(insecure_hosts=self._credentials.insecure_hosts, connections=DOWNLOADS)

    def _take(self, artifact: Artifact, path: Path) -> Path:
        """Bring a local file into the store, checked like a download."""
        try:
            content = path.read_bytes()
        except OSError as e:
            raise PxError("PX201", package=artifact.label, artifact=artifact.filename, reason=str(e)) from e
        actual = hashlib.sha256(content).hexdigest()
        if actual != artifact.sha256:
            raise self._mismatch(artifact, actual)

        def make(draft: Draft) -> Payload:
            draft.data.write_bytes(content)
            draft.data.chmod(0o444)
            return {"sha256": actual, "size": len(content)}

        oid = self.store.ensure("source", actual, make, label=artifact.filename)
        return self.store.path("source", oid) / "data"

    def _mismatch(self, artifact: Artifact, actual: str) -> PxError:
        name = artifact.filename
        return PxError("PX200", package=artifact.name, artifact=name, expected=artifact.sha256, actual=actual)

    def _built(self, artifact: Artifact) -> Package:
        """A package that has to be built: its wheel is made by uv and taken in like any other."""

        def make(draft: Draft) -> Payload:
            from px.env.wheel import WheelOf, unpack_wheel

            # In the store's own tmp, which is swept: a build that is killed leaves nothing elsewhere.
            with self.store.draft() as scratch:
                out = scratch.path / "out"
                out.mkdir()
                wheel = self.builder.build(artifact, self._source(artifact, scratch.path), out)
                version = hostbuild.built_version(artifact, wheel)
                return unpack_wheel(wheel, draft.tree(), WheelOf(artifact.name, version, self._key(artifact)))

        key = self._key(artifact)
        if artifact.kind == "directory":
            # A directory has no hash in the lock and may change at any time: it is built anew each time.
            key = hashlib.sha256(os.urandom(16)).hexdigest()
        try:
            return self._package(artifact, self.store.ensure("pkg-build", key, make, label=artifact.label))
        except PxError as e:
            if not self.builder.learn(artifact, e):
                raise
            return self._built(artifact)

    def _source(self, artifact: Artifact, scratch: Path) -> Path:
        if artifact.kind == "vcs":
            if self.store.offline:
                raise PxError("PX202", package=artifact.label, artifact=f"commit {artifact.commit}")
            return hostbuild.checkout(artifact, scratch / "repository")
        if artifact.kind == "directory":
            return self.root / artifact.location
        # uv tells the archive's type by its name, which the store does not keep.
        named = scratch / artifact.filename
        named.symlink_to(self.fetch(artifact))
        return named
