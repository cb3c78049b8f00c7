"""Forks the launchers of a run's remote tasks from one process that has Metaflow and the provider's SDK loaded.

A launcher that starts by itself spends most of its time on importing both.  The server is forked once, from the run
itself, before the first remote task; each launcher is a fork of the server with an argument list, streams and an
environment of its own, so nothing that one task did is seen by another.  ``launch_client`` stands for the launcher
where Metaflow looks for it.  The server ends with the run, however that ends, and each launcher with its client.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import marshal
import os
import select
import signal
import socket
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins import launch_client

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_SECONDS = 10.0
"""How long a run that failed waits for launchers to end the sandboxes of tasks that were killed."""


class LaunchServer:
    """The run's side: where clients reach the server, and the socket whose end is the end of the server."""

    def __init__(self, name: str, lifeline: socket.socket, pid: int):
        self.name = name
        self._lifeline = lifeline
        self._pid = pid

    def command(self, launcher: list[str]) -> list[str]:
        """The command line of a client that stands for this launcher."""
        return [sys.executable, "-I", "-S", launch_client.__file__, self.name, *launcher]

    def stop(self, *, wait: bool) -> None:
        """Let the server end once its launchers have; those whose clients were killed are ending now."""
        with contextlib.suppress(OSError):  # the server may be gone already
            self._lifeline.shutdown(socket.SHUT_WR)
        if wait and select.select([self._lifeline], [], [], STOP_SECONDS)[0]:
            os.waitpid(self._pid, 0)
        self._lifeline.close()


def start(prepare: Callable[[], None], launch: Callable[[list[str]], None]) -> LaunchServer | None:
    """Fork the server; ``prepare`` runs in it once, ``launch`` in every launcher.  None where that is not safe."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return None  # a lock that another thread holds now would stay locked in the fork
    sys.stdout.flush()
    sys.stderr.flush()
    name = f"px-launch-{uuid.uuid4().hex}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{name}")  # a name that is no file: nothing is left of it when everything is killed
    listener.listen(128)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            _Server(listener, theirs, launch).serve(prepare)
        finally:
            os._exit(0)
    listener.close()
    theirs.close()
    return LaunchServer(name, ours, pid)


class _Server:
    """The server's side."""

    def __init__(self, listener: socket.socket, lifeline: socket.socket, launch: Callable[[list[str]], None]):
        self._listener, self._lifeline, self._launch = listener, lifeline, launch
        self._clients: dict[int, socket.socket] = {}

    def serve(self, prepare: Callable[[], None]) -> None:
        woken = self._settle()
        with contextlib.suppress(Exception):
            prepare()  # what fails here fails again, with its message, in the launchers
        gc.freeze()
        running = True
        while running or self._clients:
            waiting: list[Any] = [woken, *([self._listener, self._lifeline] if running else [])]
            ready = select.select(waiting, [], [])[0]
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if self._listener in ready:
                self._fork(self._listener.accept()[0])
            if self._lifeline in ready:
                running = False

    def _settle(self) -> int:
        """Let go of the run's files, exit handlers and signals; return what can be read when a launcher has ended."""
        gc.freeze()  # nothing of the run is collected here: it would close descriptors that have new owners
        atexit._clear()
        kept = {0, 1, 2, self._listener.fileno(), self._lifeline.fileno()}
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd not in kept:
                with contextlib.suppress(OSError):
                    os.close(fd)
        for number in launch_client.SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        return woken

    def _reap(self) -> None:
        for pid in list(self._clients):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                client = self._clients.pop(pid)
                with contextlib.suppress(OSError):
                    client.send(status.to_bytes(4, "big"))
                client.close()

    def _fork(self, client: socket.socket) -> None:
        request = _request(client)
        if request is None:
            client.close()
            return
        streams, (command, environment, directory) = request
        pid = os.fork()
        if pid:
            self._clients[pid] = client
            for fd in streams:
                os.close(fd)
            return
        code = 1
        try:
            self._become(client, streams, command, environment, directory)
            self._launch(command)
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
        except BaseException:  # noqa: BLE001 - the last frame of this process
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _become(
        self, client: socket.socket, streams: list[int], command: list[str], environment: dict[str, str], directory: str
    ) -> None:
        """In the fork: take the client's place."""
        signal.set_wakeup_fd(-1)
        for number in (*launch_client.SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._listener.close()
        for other in self._clients.values():
            other.close()
        for fd, stream in enumerate(streams):
            os.dup2(stream, fd)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        client.sendall(launch_client.ACCEPTED)
        threading.Thread(target=_obey, args=(client, self._lifeline), daemon=True).start()


def _request(client: socket.socket) -> tuple[list[int], Any] | None:
    """The client's streams; and its command, environment and directory.  None where it is no client, or is gone."""
    if not launch_client.same_user(client):
        return None
    try:
        head, rights, _, _ = client.recvmsg(4, socket.CMSG_SPACE(3 * 4))
        streams = list(array.array("i", rights[0][2])) if rights else []
        data = b""
        while len(streams) == 3 and len(data) < int.from_bytes(head, "big"):
            piece = client.recv(1 << 16)
            if not piece:
                break
            data += piece
        return streams, marshal.loads(data)  # noqa: S302 - from a process of this user
    except (OSError, ValueError, EOFError, TypeError):
        return None


def _obey(client: socket.socket, lifeline: socket.socket) -> None:
    """Signals that reach the client reach the launcher; the end of the client, or of the run, ends it too."""
    while True:
        ready = select.select([client, lifeline], [], [])[0]
        try:
            number = client.recv(1) if client in ready else b""
        except OSError:
            number = b""
        os.kill(os.getpid(), number[0] if number else signal.SIGTERM)
        if not number:
            return
