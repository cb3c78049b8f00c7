"""Brings one blob into a registry: mounts it from another repository, or uploads it.

The first try sends the blob as one stream, which every registry accepts.  If the connection breaks, px asks the
registry how much it has and sends the rest in chunks, so that a bad connection makes progress too.  Some registries
cannot continue; Docker's own cannot if the connection broke in the middle of a request.  Then this blob is sent again
from its start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.http import FetchError
from px.oci.registry.client import ATTEMPTS, Body, Registry, RegistryError, passing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from urllib3.response import BaseHTTPResponse

# CHUNK is the size of one request after the first try failed; _PIECE is what is read and sent at a time.
CHUNK = 8 << 20
_PIECE = 1 << 18
_TOO_LARGE = 413
SENT, MOUNTED = "sent", "mounted"


@dataclass
class Upload:
    """An upload that has begun: the address for the next request, and how much the registry has."""

    url: str
    offset: int = 0
    least: int = 0
    """The smallest chunk that the registry accepts; only the last one may be smaller."""


@dataclass
class Sending:
    """The upload of one blob that the repository lacks."""

    registry: Registry
    digest: str
    path: Path
    on_bytes: Callable[[int], None] = lambda _: None
    chunk: int | None = None
    """The size of a chunk.  None: send the blob as one stream."""

    def run(self, mount_from: str | None = None) -> str:
        """Upload the blob, or mount it from the repository ``mount_from``.  Returns SENT or MOUNTED."""
        upload = self.registry.attempt(lambda: self._begin(mount_from))
        # A mounted blob moves the bar as if it had been sent.
        if upload is None:
            self.on_bytes(self.path.stat().st_size)
            return MOUNTED
        failures, furthest = 0, 0
        while True:
            try:
                self._send(upload)
                return SENT
            except (FetchError, RegistryError) as e:
                # A try that brought the upload further does not count as a failure.
                failures = 0 if upload.offset > furthest else failures + 1
                furthest = max(furthest, upload.offset)
                if failures >= ATTEMPTS or not (passing(e) or _recoverable(e)):
                    raise
                self.chunk = _smaller(self.chunk) if e.status == _TOO_LARGE else self.chunk or CHUNK
                self.registry.pause(failures, e)
                upload = self._continue(upload)

    def _begin(self, mount_from: str | None = None) -> Upload | None:
        """Start an upload.  None if the registry mounted the blob from another repository."""
        registry = self.registry
        mount = f"?mount={self.digest}&from={mount_from}" if mount_from else ""
        scope = f"{registry.scope} repository:{mount_from}:pull" if mount_from else None
        try:
            answer = registry.request("POST", registry.url("blobs/uploads/") + mount, Body(b""), scope=scope)
            if answer.status == 201 and mount_from:
                return None
            if answer.status != 202:
                raise registry.refusal(answer)
        except (FetchError, RegistryError) as e:
            # The registry, or its token service, does not allow the mount: upload the blob instead.
            if mount_from and e.status in (400, 401, 403, 404, 405):
                return self._begin()
            raise
        least = re.fullmatch(r"[0-9]{1,18}", answer.headers.get("OCI-Chunk-Min-Length", ""))
        return Upload(_location(answer), least=int(least[0]) if least else 0)

    def _send(self, upload: Upload) -> None:
        size = self.path.stat().st_size
        while upload.offset < size:
            length = min(max(self.chunk, upload.least) if self.chunk else size, size - upload.offset)
            self._patch(upload, length)
        # The address of an upload may already have a query, which the registry needs to find the upload again.
        joined = "&" if "?" in upload.url else "?"
        url = f"{upload.url}{joined}digest={self.digest}"
        answer = self.registry.request("PUT", url, Body(b"", {"Content-Length": "0"}))
        if answer.status != 201:
            raise self.registry.refusal(answer)

    def _patch(self, upload: Upload, length: int) -> None:
        start = upload.offset
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
        # Without "bytes" in front, unlike HTTP's own: so the distribution specification wants it.
        if self.chunk is not None:
            headers["Content-Range"] = f"{start}-{start + length - 1}"
        # If the request fails, its bytes are taken off the bar again: `_continue` adds what really arrived.
        counted = [0]

        def count(amount: int) -> None:
            counted[0] += amount
            self.on_bytes(amount)

        def body() -> Iterator[bytes]:
            count(-counted[0])  # after a login the body is sent again from its start
            return _pieces(self.path, start, length, count)

        try:
            answer = self.registry.request("PATCH", upload.url, Body(body, headers))
            if answer.status not in (202, 204):
                raise self.registry.refusal(answer)
        except (FetchError, RegistryError):
            count(-counted[0])
            raise
        # Every answer may name a new address: the distribution specification says to use it for the next request.
        upload.url = _location(answer) or upload.url
        upload.offset = start + length

    def _continue(self, upload: Upload) -> Upload:
        """Ask how much has arrived.  If the registry no longer knows the upload, start a new one."""

        def ask() -> Upload:
            answer = self.registry.request("GET", upload.url)
            if answer.status != 204:
                console.debug(f"{self.registry.host}: upload of {self.digest[7:19]} starts again")
                return self._begin() or Upload(upload.url)
            found = re.match(r"(?:bytes=)?0-([0-9]{1,18})", answer.headers.get("Range", ""))
            # Registries write "0-0" for no byte as well as for one byte: take it as none.
            arrived = int(found[1]) + 1 if found and int(found[1]) else 0
            return Upload(_location(answer) or upload.url, arrived, upload.least)

        found = self.registry.attempt(ask)
        self.on_bytes(found.offset - upload.offset)
        console.debug(f"{self.registry.host}: {self.digest[7:19]} continues at byte {found.offset}")
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
    """The next size to try after a request was too large for the registry or for a proxy before it."""
    return max(_PIECE, chunk // 2) if chunk else CHUNK


def _recoverable(error: FetchError | RegistryError) -> bool:
    """Whether smaller chunks or a new start can help.  404: the upload is unknown; 416: it is at another byte."""
    return error.status in (_TOO_LARGE, 404, 416)
