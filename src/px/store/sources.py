"""Downloaded files (.deb, .apk, wheel, sdist), kept in the store under their sha256.

Each file is fetched once per machine.  A failed transfer raises :class:`px.http.FetchError`; the caller knows the name
of the package and turns it into an error for the user.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from px.store.canonical import oid_of

if TYPE_CHECKING:
    from pathlib import Path

    from px.http import Download, Http
    from px.store.objects import Draft, Payload, Store


class StoppedError(Exception):
    """A transfer was given up, because the command failed or was interrupted in another thread."""


def find_source(store: Store, sha256: str) -> Path | None:
    """The path of the file with this hash, if the store has it."""
    oid = store.lookup("source", sha256)
    return None if oid is None else store.path("source", oid) / "data"


def ensure_source(store: Store, http: Http, what: Download) -> Path:
    """The path of the file with this hash; downloads it if the store does not have it."""

    def arrived(amount: int) -> None:
        # A thread cannot be stopped from outside.  Without this check Ctrl-C would wait for every download.
        if store.stopping:
            raise StoppedError
        what.on_bytes(amount)

    def make(draft: Draft) -> Payload:
        received = http.fetch(replace(what, on_bytes=arrived), draft.data)
        draft.data.chmod(0o444)
        draft.notes["url"] = public_url(what.url)  # `px store verify` downloads a damaged file again from there
        return {"sha256": what.sha256, "size": received}

    oid = store.ensure("source", what.sha256, make, label=what.url.rpartition("/")[2])
    return store.path("source", oid) / "data"


def public_url(url: str) -> str:
    """The address without user, password, query and fragment.  It holds no secrets, so it may be stored."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def source_ref(sha256: str, size: int) -> str:
    """The name of this source in the ``refs`` of other objects."""
    return f"source/{oid_of('source', {'sha256': sha256, 'size': size})}"


def discard_source(store: Store, sha256: str) -> None:
    """Remove a file that turned out to be damaged, so that the next attempt downloads it again."""
    oid = store.lookup("source", sha256)
    if oid is not None:
        store.discard("source", oid)
