"""Downloads as the registries publish them (.deb, .apk, wheel, sdist), kept by their sha256.

A source is fetched once per machine: into a draft, hashed as it arrives, renamed into the store.  Failed
transfers pass as :class:`px.http.FetchError`; the caller knows the package's name and raises what fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.store.canonical import oid_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from px.http import Http
    from px.store.objects import Draft, Payload, Store


class StoppedError(Exception):
    """A transfer in another thread, given up because the command has failed or was interrupted meanwhile."""


def find_source(store: Store, sha256: str) -> Path | None:
    """Where the file with this hash is kept, if it was fetched before."""
    oid = store.lookup("source", sha256)
    return None if oid is None else store.path("source", oid) / "data"


def ensure_source(
    store: Store,
    http: Http,
    url: str,
    sha256: str,
    size: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Path:
    """The file with this hash, fetched from ``url`` unless the store has it already."""

    def arrived(amount: int) -> None:
        if store.stopping:
            raise StoppedError
        if on_bytes is not None:
            on_bytes(amount)

    def make(draft: Draft) -> Payload:
        received = http.fetch(url, draft.data, sha256=sha256, size=size, on_bytes=arrived)
        draft.data.chmod(0o444)
        draft.notes["url"] = public_url(url)
        return {"sha256": sha256, "size": received}

    oid = store.ensure("source", sha256, make, label=url.rpartition("/")[2])
    return store.path("source", oid) / "data"


def public_url(url: str) -> str:
    """The address without user, password, query and fragment: fit to be kept, and enough to fetch again."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def source_ref(sha256: str, size: int) -> str:
    """How another object's ``refs`` name this source."""
    return f"source/{oid_of('source', {'sha256': sha256, 'size': size})}"


def discard_source(store: Store, sha256: str) -> None:
    """Forget a kept file that turned out to be damaged, so that the next attempt fetches it anew."""
    oid = store.lookup("source", sha256)
    if oid is not None:
        store.discard("source", oid)
