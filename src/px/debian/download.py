"""Downloads pinned packages into the store, in parallel.  Each is checked against its sha256.

Mirrors are tried in order.  A snapshot archive gets two connections at a time, and time when it asks for it.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from px import console
from px.debian.mirror import OFFICIAL, SNAPSHOT, mirrors
from px.errors import PxError
from px.store.sources import StoppedError, ensure_source, find_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from px.debian.lock import BaseLock, PinnedPackage
    from px.debian.mirror import Mirror
    from px.http import Download, FetchError, Http
    from px.store.objects import Store

CONNECTIONS = 8
SNAPSHOT_CONNECTIONS = 2
# A snapshot archive that asks for patience (429) gets it: so many times, after so many seconds each.
PAUSES = (2, 5, 10, 20, 40, 60, 60, 60)
_BUSY = (429, 503)
KNOCK = 5.0
"""How many seconds a server has to answer for the first time: without a network, nothing shall wait long."""


def ensure_packages(
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    sources: Sequence[Mirror] | None = None,
) -> dict[str, Path]:
    """Return the path of each package's file in the store, by name; download those that are missing.

    ``sources`` are tried in order.  The default is :func:`px.debian.mirror.mirrors`.
    """
    with arriving(store, lock, packages, sources) as place:
        return {package.name: place(package) for package in packages}


@contextmanager
def arriving(
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    sources: Sequence[Mirror] | None = None,
) -> Iterator[Callable[[PinnedPackage], Path]]:
    """Start the downloads and yield a function that returns a package's path, after a wait if it must still arrive.

    Packages are downloaded in the order of ``packages``, so that the caller can unpack the first ones while the others
    arrive.
    """
    # The store is asked first for all packages: the label of the bar says how many are missing.
    found = {p.name: find_source(store, p.sha256) for p in packages}
    missing = [p for p in packages if found[p.name] is None]
    if not missing:
        yield lambda p: cast("Path", found[p.name])
        return
    if store.offline:
        raise _offline_error(lock, missing)
    with _downloading(store, lock, missing, sources or mirrors(lock.date, *lock.older)) as coming:
        yield lambda p: found[p.name] or coming[p.name].result()


@dataclass(frozen=True)
class _Way:
    """What every download of one lock needs."""

    store: Store
    lock: BaseLock
    sources: Sequence[Mirror]
    servers: dict[str, Server] = field(default_factory=dict)

    def server(self, mirror: Mirror, url: str) -> Server:
        """The server of an address: snapshots of two dates are one, and its limits count for both."""
        # Several threads may make it at once: setdefault lets one win.
        host = urlsplit(url).netloc
        return self.servers.get(host) or self.servers.setdefault(host, Server.of(mirror))


@dataclass
class Server:
    """What this process has found out about a server, and how it may be used."""

    is_snapshot: bool
    http: Http
    connections: int
    slots: threading.Semaphore
    knocking: threading.Lock = field(default_factory=threading.Lock)
    unreachable: FetchError | None = None
    answered: bool = False
    quiet_until: float = 0.0
    """It asked to be left alone until then."""

    @classmethod
    def of(cls, mirror: Mirror) -> Server:
        import urllib3

        from px.http import Http  # urllib3 takes long to import, and most of the time everything is here

        if not mirror.is_snapshot:
            return cls(False, Http(connections=CONNECTIONS), CONNECTIONS, threading.Semaphore(CONNECTIONS))
        # Not repeated at once, as a mirror's answers are: that is what makes a snapshot archive refuse its callers.
        http = Http(
            connections=SNAPSHOT_CONNECTIONS,
            retries=urllib3.Retry(2, respect_retry_after_header=False, backoff_factor=1),
        )
        return cls(True, http, SNAPSHOT_CONNECTIONS, threading.Semaphore(SNAPSHOT_CONNECTIONS))

    def knock(self, url: str) -> None:
        """Ask once whether it is there: fetching would try many times, for every package."""
        from px.http import FetchError

        with self.knocking:
            if not self.answered and self.unreachable is None:
                try:
                    self.http.request("HEAD", url, retries=False, connect=KNOCK)
                    self.answered = True
                except FetchError as e:
                    self.unreachable = e
        if self.unreachable is not None:
            raise self.unreachable

    def fetch(self, store: Store, what: Download) -> Path:
        """Download from here, with the patience that a snapshot archive asks for."""
        from px.http import FetchError

        for pause in (*PAUSES, None):
            with self.slots:
                self._wait(store)
                self.knock(what.url)
                try:
                    return ensure_source(store, self.http, what)
                except FetchError as e:
                    if not self.is_snapshot or e.status not in _BUSY or pause is None:
                        raise
                    self._rest(e.retry_after or pause)
        raise AssertionError  # the loop returns or raises

    def ask(self, url: str) -> int:
        """The status of an address, with the same patience."""
        for pause in (*PAUSES, None):
            with self.slots:
                self._wait()
                status = self.http.request("HEAD", url).status
            if not self.is_snapshot or status not in _BUSY or pause is None:
                break
            self._rest(pause)
        return status

    def _rest(self, seconds: float) -> None:
        seconds = min(seconds, max(PAUSES))
        if time.monotonic() > self.quiet_until:
            console.info(f"The snapshot archive asks px to wait: going on in {seconds:.0f} s …")
        self.quiet_until = max(self.quiet_until, time.monotonic() + seconds)

    def _wait(self, store: Store | None = None) -> None:
        while (left := self.quiet_until - time.monotonic()) > 0:
            if store is not None and store.stopping:
                raise StoppedError
            time.sleep(min(left, 0.2))


@contextmanager
def _downloading(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], sources: Sequence[Mirror]
) -> Iterator[dict[str, Future[Path]]]:
    way = _Way(store, lock, sources)
    console.detail(f"{lock.name}: {console.counted(len(packages), 'package')} from {sources[0].origin}")
    label = f"Downloading {console.counted(len(packages), 'system package')}"
    with console.progress(label, sum(p.size for p in packages)) as bar, ThreadPoolExecutor(CONNECTIONS) as pool:
        coming = {p.name: pool.submit(_fetch, way, p, bar.advance) for p in packages}
        # The bar is finished by whichever download is the last, and only if none of them failed.
        left = set(coming.values())

        def arrived(future: Future[Path]) -> None:
            left.discard(future)
            if not left and not future.cancelled() and future.exception() is None:
                bar.finish()  # the caller's block may go on much longer

        for future in coming.values():
            future.add_done_callback(arrived)
        try:
            yield coming
        except BaseException:
            # Without this, leaving the pool's block would wait for every download that has not begun.
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(way: _Way, package: PinnedPackage, on_bytes: Callable[[int], None]) -> Path:
    from px.http import Download, FetchError

    failures: list[tuple[Mirror, FetchError]] = []
    for mirror in way.sources:
        url = mirror.url(package.suite, package.path)
        try:
            return way.server(mirror, url).fetch(way.store, Download(url, package.sha256, package.size, on_bytes))
        except FetchError as e:
            console.detail(f"{package.label}: {mirror.origin}: {e.reason}")
            failures.append((mirror, e))
    raise _download_error(way.lock, package, failures)


def _download_error(lock: BaseLock, package: PinnedPackage, failures: Sequence[tuple[Mirror, FetchError]]) -> PxError:
    why = [
        f"{console.redact(mirror.archive(package.suite))}/{package.path}: {e.reason} ({mirror.origin})"
        for mirror, e in failures
    ]
    fix = []
    variable = "PX_ALPINE_MIRROR" if lock.is_alpine else "PX_DEBIAN_MIRROR"
    if any(e.actual_sha256 for _, e in failures):
        why.append("The downloaded file is not the one that the base's lock pins, so px removed it.")
    if any(e.status == 404 for _, e in failures) and lock.is_alpine:
        why.append("A mirror removes a version when a newer one is published, and nothing keeps all of Alpine's.")
        fix.append(f"Pin the versions that mirrors have now: px base lock {lock.name}")
    elif any(e.status == 404 for _, e in failures):
        why.append("A mirror removes a version soon after a newer one is published; the snapshot archive keeps all.")
        fix.append(_current(lock))
        if not any(mirror.is_snapshot for mirror, _ in failures):
            fix.append(f"Or let px ask Debian's snapshot archive too: export {SNAPSHOT}={OFFICIAL}")
    fix.append(f"Check the network and the proxy, or name another mirror: export {variable}=URL")
    fix.append("Then run the command again; px keeps what it has downloaded.")
    # Another base would come from the same places; px itself is to blame only if a file is gone or is another.
    elsewhere = not any(e.status == 404 or e.actual_sha256 for _, e in failures)
    problem = f"{package.label} could not be downloaded"
    return PxError("PX900", base=lock.name, problem=problem, why=why, fix=fix, whole_fix=elsewhere)


def _current(lock: BaseLock) -> str:
    if lock.pins is not None:
        return "Take the versions that mirrors have now into the project's pins: px sandbox update"
    return "Upgrade px: the locks of its newest release name current versions."


def _offline_error(lock: BaseLock, missing: Sequence[PinnedPackage]) -> PxError:
    names = ", ".join(p.label for p in missing[:3]) + (" …" if len(missing) > 3 else "")
    return PxError(
        "PX900",
        base=lock.name,
        problem=f"{len(missing)} of its packages are not in the store, and px is offline",
        why=[f"Missing: {names}"],
        fix=["Run the command once without --offline; px keeps what it downloads."],
        whole_fix=True,
    )
