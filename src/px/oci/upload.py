"""One blob on its way to a registry: found there, mounted from another repository, or sent, resumed if need be.

The first try sends the blob as one stream, which every registry takes.  If the connection breaks, the
registry is asked how much it has, and the rest follows in chunks, so that a bad line makes progress.  A
registry that cannot continue (Docker's own cannot, when the cut came in the middle of a request) gets this
blob from its start; the other blobs are not touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.http import FetchError
from px.oci.registry import ATTEMPTS, Registry, RegistryError, passing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from urllib3.response import BaseHTTPResponse

CHUNK = 8 << 20
_PIECE = 1 << 18
_TOO_LARGE = 413
SENT, MOUNTED = "sent", "mounted"


@dataclass
class Upload:
    """An upload that has begun: where it continues, and how much the registry has."""

    url: str
    offset: int = 0
    least: int = 0
    """The smallest chunk that the registry takes, but for the last one."""


def send_blob(
    registry: Registry,
    digest: str,
    path: Path,
    *,
    mount_from: str | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
    chunk: int | None = None,
) -> str:
    """Bring a blob that the registry lacks into the repository; says whether it was sent or mounted.

    With ``chunk``, it goes in pieces of that size from the beginning.
    """
    upload = registry.attempt(lambda: _begin(registry, digest, mount_from))
    if upload is None:
        on_bytes(path.stat().st_size)
        return MOUNTED
    failures, furthest = 0, 0
    while True:
        try:
            _send(registry, upload, digest, path, chunk, on_bytes)
            return SENT
        except (FetchError, RegistryError) as e:
            failures = 0 if upload.offset > furthest else failures + 1
            furthest = max(furthest, upload.offset)
            if failures >= ATTEMPTS or not (passing(e) or _recoverable(e)):
                raise
            chunk = _smaller(chunk) if e.status == _TOO_LARGE else chunk or CHUNK
            registry.pause(failures, e)
            upload = _continue(registry, upload, digest, on_bytes)


def _begin(registry: Registry, digest: str, mount_from: str | None) -> Upload | None:
    """Start an upload; None if the registry could take the blob from a repository that has it."""
    mount = f"?mount={digest}&from={mount_from}" if mount_from else ""
    scope = f"{registry.scope} repository:{mount_from}:pull" if mount_from else None
    try:
        answer = registry.request("POST", registry.url("blobs/uploads/") + mount, body=b"", scope=scope)
        if answer.status == 201 and mount_from:
            return None
        if answer.status != 202:
            raise registry.refusal(answer)
    except (FetchError, RegistryError) as e:
        # The registry, or its token service, does not let us mount: that is its right.
        if mount_from and e.status in (400, 401, 403, 404, 405):
            return _begin(registry, digest, None)
        raise
    least = answer.headers.get("OCI-Chunk-Min-Length", "")
    return Upload(_location(answer), least=int(least) if least.isdecimal() else 0)


def _send(
    registry: Registry,
    upload: Upload,
    digest: str,
    path: Path,
    chunk: int | None,
    on_bytes: Callable[[int], None],
) -> None:
    size = path.stat().st_size
    while upload.offset < size:
        length = min(max(chunk, upload.least) if chunk else size, size - upload.offset)
        _patch(registry, upload, path, length, on_bytes, ranged=chunk is not None)
    joined = "&" if "?" in upload.url else "?"
    answer = registry.request("PUT", f"{upload.url}{joined}digest={digest}", headers={"Content-Length": "0"}, body=b"")
    if answer.status != 201:
        raise registry.refusal(answer)


def _patch(
    registry: Registry, upload: Upload, path: Path, length: int, on_bytes: Callable[[int], None], *, ranged: bool
) -> None:
    start = upload.offset
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
    if ranged:
        headers["Content-Range"] = f"{start}-{start + length - 1}"
    counted = [0]

    def count(amount: int) -> None:
        counted[0] += amount
        on_bytes(amount)

    def body() -> Iterator[bytes]:
        count(-counted[0])  # sent again from the start, after the registry asked who we are
        return _pieces(path, start, length, count)

    try:
        answer = registry.request("PATCH", upload.url, headers=headers, body=body)
        if answer.status not in (202, 204):
            raise registry.refusal(answer)
    except (FetchError, RegistryError):
        count(-counted[0])
        raise
    upload.url = _location(answer) or upload.url
    upload.offset = start + length


def _continue(registry: Registry, upload: Upload, digest: str, on_bytes: Callable[[int], None]) -> Upload:
    """Ask what arrived; an upload that the registry has forgotten starts again."""

    def ask() -> Upload:
        answer = registry.request("GET", upload.url)
        if answer.status != 204:
            console.debug(f"{registry.host}: upload of {digest[7:19]} starts again")
            fresh = _begin(registry, digest, None)
            return fresh or Upload(upload.url)
        found = re.match(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", ""))
        # "0-0" is how registries spell both nothing and one byte: take it as nothing.
        arrived = int(found[1]) + 1 if found and int(found[1]) else 0
        return Upload(_location(answer) or upload.url, arrived, upload.least)

    found = registry.attempt(ask)
    on_bytes(found.offset - upload.offset)
    console.debug(f"{registry.host}: {digest[7:19]} continues at byte {found.offset}")
    return found


def _location(answer: BaseHTTPResponse) -> str:
    return answer.headers.get("Location", "")


def _pieces(path: Path, start: int, length: int, count: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as f:
        f.seek(start)
        while length and (piece := f.read(min(_PIECE, length))):
            yield piece
            length -= len(piece)
            count(len(piece))


def _smaller(chunk: int | None) -> int:
    """What to try when a request was too large for the registry or a proxy before it."""
    return max(_PIECE, chunk // 2) if chunk else CHUNK


def _recoverable(error: FetchError | RegistryError) -> bool:
    """Too large; or the registry forgot the upload, or has another idea of how far it got."""
    return error.status in (_TOO_LARGE, 404, 416)
