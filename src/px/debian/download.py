"""Downloads pinned packages into the store, in parallel.  Each is checked against its sha256."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from px import console
from px.debian.mirror import mirrors
from px.errors import PxError
from px.store.sources import ensure_source, find_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from px.debian.lock import BaseLock, PinnedPackage
    from px.debian.mirror import Mirror
    from px.http import FetchError, Http
    from px.store.objects import Store

CONNECTIONS = 8


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
    with _downloading(store, lock, missing, mirrors(lock.date) if sources is None else sources) as coming:
        yield lambda p: found[p.name] or coming[p.name].result()


@dataclass(frozen=True)
class _Way:
    """What every download of one lock needs."""

    store: Store
    http: Http
    lock: BaseLock
    sources: Sequence[Mirror]


@contextmanager
def _downloading(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], sources: Sequence[Mirror]
) -> Iterator[dict[str, Future[Path]]]:
    from px.http import Http  # urllib3 takes long to import, and most of the time everything is here

    way = _Way(store, Http(connections=CONNECTIONS), lock, sources)
    console.detail(f"{lock.name}: {len(packages)} packages from {sources[0].origin}")
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
        try:
            url = mirror.url(package.suite, package.path)
            if failures:
                # A second mirror that cannot be reached must fail at once: fetching would try it many times.
                way.http.request("HEAD", url, retries=False)
            return ensure_source(way.store, way.http, Download(url, package.sha256, package.size, on_bytes))
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
    if any(e.actual_sha256 for _, e in failures):
        why.append("The downloaded file is not the one that the base's lock pins, so px removed it.")
    if any(e.status == 404 for _, e in failures):
        why.append("A mirror removes a version soon after a newer one is published; the snapshot archive keeps all.")
        fix.append("Upgrade px: the locks of its newest release name current versions.")
    fix.append("Check the network and the proxy, or name another mirror: export PX_DEBIAN_MIRROR=URL")
    fix.append("Then run the command again; px keeps what it has downloaded.")
    return PxError("PX900", base=lock.name, problem=f"{package.label} could not be downloaded", why=why, fix=fix)


def _offline_error(lock: BaseLock, missing: Sequence[PinnedPackage]) -> PxError:
    names = ", ".join(p.label for p in missing[:3]) + (" …" if len(missing) > 3 else "")
    return PxError(
        "PX900",
        base=lock.name,
        problem=f"{len(missing)} of its packages are not in the store, and px is offline",
        why=[f"Missing: {names}"],
        fix=["Run the command once without --offline; px keeps what it downloads."],
    )
