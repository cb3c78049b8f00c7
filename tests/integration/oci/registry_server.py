"""Debian's ``docker-registry``, started on loopback for one test, and a proxy that breaks connections to it."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER, PASSWORD = "pusher", "correct horse"


@dataclass
class RunningRegistry:
    """A registry process: where it listens, what it logged."""

    port: int
    log: Path
    storage: Path
    process: subprocess.Popen[bytes]
    ca: Path | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, method: str) -> list[str]:
        """The addresses of every request of one method that was answered, in order."""
        time.sleep(0.1)  # the line is written after the answer
        found = []
        for line in self.log.read_text().splitlines():
            if 'msg="response completed"' in line and f"http.request.method={method} " in line:
                uri = re.search(r'http\.request\.uri="?([^" ]+)', line)
                found.append(uri[1] if uri else "?")
        return found

    def uploaded(self) -> list[str]:
        """Digests of the blobs that were finished by an upload."""
        return [uri.split("digest=")[1].replace("%3A", ":") for uri in self.requests("PUT") if "digest=" in uri]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def running_registry(
    folder: Path, *, password: bool = False, tls: bool = False, storage: Path | None = None, extra: str = ""
) -> Iterator[RunningRegistry]:
    """Start a registry and end it; ``extra`` is more of its YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    storage = storage or folder / "data"
    for _ in range(3):  # somebody may take the port between our look and the registry's bind
        server = _start(folder, storage, free_port(), password=password, tls=tls, extra=extra)
        if _wait(server):
            break
        server.process.kill()
        server.process.wait()
    else:
        raise AssertionError(server.log.read_text())
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(10)


def _start(folder: Path, storage: Path, port: int, *, password: bool, tls: bool, extra: str) -> RunningRegistry:
    config = [
        "version: 0.1",
        "log: {level: info, formatter: text, accesslog: {disabled: true}}",
        f"storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}",
        f"http:\n  addr: 127.0.0.1:{port}",
    ]
    if tls:
        _make_certificate(folder)
        config[-1] += f"\n  tls: {{certificate: {folder / 'tls.crt'}, key: {folder / 'tls.key'}}}"
    if password:
        done = subprocess.run(["htpasswd", "-Bbn", USER, PASSWORD], capture_output=True, check=True)
        (folder / "htpasswd").write_bytes(done.stdout)
        config.append(f"auth: {{htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}}}")
    (folder / "config.yml").write_text("\n".join(config) + "\n" + extra)
    log = folder / "log"
    process = subprocess.Popen(
        ["docker-registry", "serve", folder / "config.yml"], stdout=log.open("wb"), stderr=subprocess.STDOUT
    )
    return RunningRegistry(port, log, storage, process, folder / "ca.crt" if tls else None)


def _wait(server: RunningRegistry) -> bool:
    for _ in range(200):
        if server.process.poll() is not None:
            return False
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 0.2):
            return True
        time.sleep(0.05)
    return False


def _make_certificate(folder: Path) -> None:
    """A CA and a certificate for 127.0.0.1 that it signed."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(*new, "-subj", "/CN=registry", "-keyout", "tls.key", "-out", "tls.csr")
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    sign = ("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl(*sign, "-extfile", "ext", "-out", "tls.crt")


@dataclass
class FaultProxy:
    """Passes TCP connections on, and cuts them when the client has sent too much."""

    target: int
    cut_after: int | None = None
    """Cut a connection once so many bytes have come from the client through it."""
    cut_at_patch: int | None = None
    """Cut when the client begins its PATCH request number so many, before any of it is passed on."""
    cuts: int = 10**9
    """How many connections may still be cut."""
    patches: int = 0
    from_client: int = 0
    made: int = 0
    _server: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _connection(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.target))
        back = threading.Thread(target=self._pass_back, args=(server, client), daemon=True)
        back.start()
        passed = 0
        with suppress(OSError), client, server:
            while piece := client.recv(1 << 16):
                passed += len(piece)
                self.from_client += len(piece)
                self.patches += piece.startswith(b"PATCH ")
                if self.cuts > 0 and self._cut_here(passed):
                    self.cuts -= 1
                    self.made += 1
                    # A reset, as when a cable is pulled; what was already passed on stays there.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    return
                server.sendall(piece)

    def _cut_here(self, passed: int) -> bool:
        if self.cut_after is not None and passed > self.cut_after:
            return True
        return self.cut_at_patch is not None and self.patches >= self.cut_at_patch

    @staticmethod
    def _pass_back(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(1 << 16):
                client.sendall(piece)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)


@contextmanager
def fault_proxy(
    registry: RunningRegistry, *, cut_after: int | None = None, cut_at_patch: int | None = None, cuts: int = 10**9
) -> Iterator[FaultProxy]:
    proxy = FaultProxy(registry.port, cut_after, cut_at_patch, cuts)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
