"""Servers of the tests' internet: plain, over TLS, and for large downloads."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import need

Handler = Callable[[socket.socket], None]


def hello(connection: socket.socket) -> None:
    """Say at which address and port this is, then repeat what comes."""
    connection.sendall("{}:{} ".format(*connection.getsockname()[:2]).encode())
    while piece := connection.recv(65536):
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)


def http(connection: socket.socket) -> None:
    request = connection.recv(65536).split(b"\r\n")
    [host] = [line for line in request if line.lower().startswith(b"host:")]
    body = b"you asked " + host.split()[1]
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))


@contextmanager
def serving(listener: socket.socket, handler: Handler) -> Iterator[int]:
    """Serve every connection in a thread of its own; the port."""

    def one(connection: socket.socket) -> None:
        try:
            with connection:
                handler(connection)
        except OSError:
            return  # the other side left

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def over_tls(directory: Path, *names: str) -> tuple[Callable[[Handler], Handler], Path]:
    """What makes a handler one over TLS, for these names; and the certificate to trust."""
    need("openssl")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=px test", "-addext", f"subjectAltName=DNS:{',DNS:'.join(names)}"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    certificate.chmod(0o644)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def wrap(handler: Handler) -> Handler:
        return lambda connection: handler(context.wrap_socket(connection, server_side=True))

    return wrap, certificate
