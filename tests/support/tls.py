"""An HTTPS server on loopback with a certificate of its own making."""

from __future__ import annotations

import ssl
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.needs import need

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Server:
    """Where it listens, and the certificate to trust."""

    port: int
    certificate: Path


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"hello over TLS"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@contextmanager
def serve_https(directory: Path) -> Iterator[Server]:
    need("openssl")
    key, certificate = directory / "key.pem", directory / "ca.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hello)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield Server(server.server_address[1], certificate)
    finally:
        server.shutdown()
        server.server_close()
