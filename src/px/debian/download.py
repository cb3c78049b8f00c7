"""Getting pinned packages into the store: in parallel, each checked against its pin as it arrives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    *,
    offline: bool = False,
    sources: Sequence[Mirror] | None = None,
) -> dict[str, Path]:
    """Where each package's file lies in the store, by name; what is not there is downloaded.

    ``sources`` are asked in order; Debian's own are the default.
    """
    with arriving(store, lock, packages, offline=offline, sources=sources) as place:
        return {package.name: place(package) for package in packages}


@contextmanager
def arriving(
    store: Store,
    lock: BaseLock,
    packages: Sequence[PinnedPackage],
    *,
    offline: bool = False,
    sources: Sequence[Mirror] | None = None,
) -> Iterator[Callable[[PinnedPackage], Path]]:
    """A function that says where a package's file lies, and waits for it if need be: downloads begin at once.

    They come in the order that is given here.
    """
    found = {p.name: find_source(store, p.sha256) for p in packages}
    missing = [p for p in packages if found[p.name] is None]
    if not missing:
        yield lambda p: cast("Path", found[p.name])
        return
    if offline:
        raise _offline_error(lock, missing)
    with _downloading(store, lock, missing, mirrors(lock.date) if sources is None else sources) as coming:
        yield lambda p: found[p.name] or coming[p.name].result()


@contextmanager
def _downloading(
    store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], sources: Sequence[Mirror]
) -> Iterator[dict[str, Future[Path]]]:
    from px.http import Http

    http = Http(connections=CONNECTIONS)
    console.detail(f"{lock.name}: {len(packages)} packages from {sources[0].origin}")
    label = f"Downloading {console.counted(len(packages), 'system package')}"
    with console.progress(label, sum(p.size for p in packages)) as bar, ThreadPoolExecutor(CONNECTIONS) as pool:
        coming = {p.name: pool.submit(_fetch, store, http, sources, lock, p, bar.advance) for p in packages}
        left = set(coming.values())

        def arrived(future: Future[Path]) -> None:
            left.discard(future)
            if not left and not future.cancelled() and future.exception() is None:
                bar.finish()  # who uses the packages may be at it for longer

        for future in coming.values():
            future.add_done_callback(arrived)
        try:
            yield coming
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(
    store: Store,
    http: Http,
    sources: Sequence[Mirror],
    lock: BaseLock,
    package: PinnedPackage,
    on_bytes: Callable[[int], None],
) -> Path:
    from px.http import FetchError

    failures: list[tuple[Mirror, FetchError]] = []
    for mirror in sources:
        try:
            url = mirror.url(package.suite, package.path)
            if failures:
                http.request("HEAD", url, retries=False)  # no patience with a second choice that cannot be reached
            return ensure_source(store, http, url, package.sha256, package.size, on_bytes)
        except FetchError as e:
            console.detail(f"{package.label}: {mirror.origin}: {e.reason}")
            failures.append((mirror, e))
    raise _download_error(lock, package, failures)


def _download_error(lock: BaseLock, package: PinnedPackage, failures: Sequence[tuple[Mirror, FetchError]]) -> PxError:
    why = [
        f"{console.redact(mirror.archive(package.suite))}/{package.path}: {e.reason} ({mirror.origin})"
        for mirror, e in failures
    ]
    fix = []
    if any(e.actual_sha256 for _, e in failures):
        why.append("The file is not the one that the base's lock pins, so it was thrown away.")
    if any(e.status == 404 for _, e in failures):
        why.append("A mirror drops a version soon after a newer one is published; the snapshot archive keeps all.")
        fix.append("Use px's newest release, whose locks name current versions.")
    fix.append("Check the network and the proxy, or name another mirror: export PX_DEBIAN_MIRROR=URL")
    fix.append("Run the command again; what was downloaded is kept.")
    return PxError("PX900", base=lock.name, problem=f"{package.label} could not be downloaded", why=why, fix=fix)


def _offline_error(lock: BaseLock, missing: Sequence[PinnedPackage]) -> PxError:
    names = ", ".join(p.label for p in missing[:3]) + (" …" if len(missing) > 3 else "")
    return PxError(
        "PX900",
        base=lock.name,
        problem=f"{len(missing)} of its packages are not in the store, and px is offline",
        why=[f"Missing: {names}"],
        fix=["Run the command once without --offline; what it downloads is kept."],
    )
