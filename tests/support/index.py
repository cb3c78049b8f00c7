"""A Python package index on loopback, over the simple repository protocol, with an optional password."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Index:
    """Serves every wheel and sdist of a directory; counts what is asked of it."""

    def __init__(self, directory: Path, password: str | None = None):
        self.directory = directory
        self.password = password
        self.requests: list[str] = []
        self.cut_after: int | None = None
        """Break the connection after so many bytes of a file, once."""
        self.gone: set[str] = set()
        """Files that the pages list and that are not there any more."""
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/simple/"

    def url_with(self, user: str, password: str) -> str:
        return self.url.replace("://", f"://{user}:{password}@")

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(request.path)
        if self.password is not None:
            wanted = "Basic " + base64.b64encode(f"reader:{self.password}".encode()).decode()
            if request.headers.get("Authorization") != wanted:
                request.send_response(401)
                request.send_header("WWW-Authenticate", 'Basic realm="index"')
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
        found = re.fullmatch(r"/simple/([^/]+)/", request.path)
        if found:
            self._send(request, self._page(found[1]).encode(), "text/html")
            return
        name = request.path.rpartition("/")[2]
        path = self.directory / name.removesuffix(".metadata")
        if not request.path.startswith("/files/") or not path.is_file() or name in self.gone:
            request.send_error(404)
        elif name.endswith(".metadata"):
            self._send(request, _metadata(path), "text/plain")
        else:
            self._send(request, path.read_bytes(), "application/octet-stream")

    def _page(self, name: str) -> str:
        rows = [
            f'<a href="/files/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"'
            f"{' data-core-metadata=true' if path.suffix == '.whl' else ''}>{path.name}</a>"
            for path in sorted(self.directory.iterdir())
            if re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower() == name
        ]
        return f"<!DOCTYPE html><html><body>{''.join(rows)}</body></html>"

    def _send(self, request: BaseHTTPRequestHandler, content: bytes, kind: str) -> None:
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if self.cut_after is not None and kind == "application/octet-stream":
            content, self.cut_after = content[: self.cut_after], None
            request.close_connection = True
        if request.command != "HEAD":
            request.wfile.write(content)


def _metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA")))


@contextmanager
def serving(directory: Path, password: str | None = None) -> Iterator[Index]:
    index = Index(directory, password)
    thread = threading.Thread(target=index.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.server.shutdown()
        index.server.server_close()
