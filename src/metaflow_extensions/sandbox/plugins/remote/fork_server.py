"""The fork server: a process that has imported Metaflow and the provider's SDK, and forks the trampolines of a run.

A trampoline that starts by itself spends most of its time on these imports.  A run starts one server before its first
remote task.  For each task Metaflow then starts a stand-in (``stand_in.py``), which asks the server for a fork.  The
fork takes over the stand-in's command, environment, directory and streams, and runs the flow as ``python flow.py``
would.  Nothing of the run or of another task is in it.

The socket lies in a directory under ``PX_HOME`` that only this user can enter, and that no sandbox sees.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from metaflow_extensions.sandbox.plugins.remote import stand_in

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_SECONDS = 10.0
"""How long a run waits at its end for trampolines that are destroying their sandboxes."""
REQUEST_SECONDS = 10.0
LONGEST_HOME = 80
"""Bytes.  The path of a socket may have 107, and its own directory and name are in it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ForkServer:
    """The server, as the run sees it."""

    def __init__(self, path: str, process: subprocess.Popen[bytes]):
        self._path, self._process = path, process

    @classmethod
    def start(cls, backend: str, datastore: str) -> ForkServer | None:
        """Start a server that imports what this backend and this datastore need; None if there can be none here."""
        from tempfile import mkdtemp

        from px.home import Home

        home = Home.from_environment().sandbox
        if sys.platform != "linux" or len(os.fsencode(home)) > LONGEST_HOME:
            return None
        try:
            home.mkdir(parents=True, exist_ok=True)
            path = os.path.join(mkdtemp(prefix="fork-", dir=home), "socket")
        except OSError:
            return None  # a home that cannot be written only makes remote tasks slower
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            # From here on, a stand-in can connect; it waits until the server has imported everything.
            listener.listen(128)
            # -u as in the command of a trampoline, whose streams the forks get.
            command = [sys.executable, "-u", "-m", __name__, str(listener.fileno()), backend, datastore]
            nothing, inherited = subprocess.DEVNULL, [listener.fileno()]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, pass_fds=inherited
            )
        return cls(path, process)

    def command(self, trampoline: list[str]) -> list[str]:
        """The command of a stand-in for this trampoline."""
        return [sys.executable, "-I", "-S", stand_in.__file__, self._path, *trampoline]

    def stop(self) -> None:
        """Let the server end.  Before it does, it ends the trampolines whose stand-ins were killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)


# --- in the server ----------------------------------------------------------------------------------------------


def main(listener: str, backend: str, datastore: str) -> None:
    import gc
    import shutil

    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C is for the trampolines; this process ends with the run
    with suppress(Exception):
        preload(backend, datastore)  # what fails here fails again in the trampolines, with a message
    gc.freeze()  # or every fork would copy this memory when it collects garbage
    with socket.socket(fileno=int(listener)) as found:
        directory = os.path.dirname(found.getsockname())
        Server(found).serve()
    shutil.rmtree(directory, ignore_errors=True)


def preload(backend: str, datastore: str) -> None:
    from metaflow_extensions.sandbox.plugins.backends import get_remote_backend

    get_remote_backend(backend).load()
    # But not metaflow.cli, which asks the flow for its configs when it is imported.
    import metaflow  # noqa: F401 - for what it imports

    if datastore == "s3":
        from metaflow.plugins.datatools.s3.s3util import get_s3_client

        get_s3_client()


class Server:
    """Waits for stand-ins, for the ends of trampolines, and for the end of the run."""

    def __init__(self, listener: socket.socket):
        self._listener = listener
        self._poll = select.poll()
        self._actions: dict[int, Callable[[], None]] = {}
        """What to do when something happens to a descriptor."""
        self._trampolines: set[int] = set()
        self._watch(listener.fileno(), select.POLLIN, self._fork)
        self._watch(0, select.POLLIN, self._stop)  # a pipe that closes when the run ends

    def serve(self) -> None:
        while self._actions:
            # One at a time: an action may close a descriptor, and the next one may open another with its number.
            self._actions[self._poll.poll()[0][0]]()

    def _watch(self, fd: int, events: int, action: Callable[[], None]) -> None:
        self._poll.register(fd, events)
        self._actions[fd] = action

    def _forget(self, fd: int) -> None:
        if self._actions.pop(fd, None):
            self._poll.unregister(fd)

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        pid = os.fork()
        if pid == 0:
            become_trampoline(connection)
        self._trampolines.add(pid)
        ended = os.pidfd_open(pid)
        self._watch(ended, select.POLLIN, partial(self._ended, pid, ended, connection))
        # A stand-in that closes the connection before the end of its trampoline has been killed.
        self._watch(connection.fileno(), select.POLLRDHUP, partial(self._terminate, pid, connection.fileno()))

    def _ended(self, pid: int, ended: int, connection: socket.socket) -> None:
        self._trampolines.remove(pid)
        self._forget(ended)
        os.close(ended)
        self._forget(connection.fileno())
        status = os.waitpid(pid, 0)[1]
        with suppress(OSError):
            connection.send(status.to_bytes(4, "big"))
        connection.close()

    def _terminate(self, pid: int, connection: int) -> None:
        self._forget(connection)
        os.kill(pid, signal.SIGTERM)

    def _stop(self) -> None:
        """The run has ended: take no more tasks, and end those that are left."""
        self._forget(0)
        self._forget(self._listener.fileno())
        self._listener.close()
        for pid in self._trampolines:
            os.kill(pid, signal.SIGTERM)


# --- in a fork --------------------------------------------------------------------------------------------------


def become_trampoline(connection: socket.socket) -> NoReturn:
    """Take the place of the process at the other end of the connection, and run its command."""
    import atexit

    code = 1
    try:
        connection.settimeout(REQUEST_SECONDS)
        command = take_over(connection)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        connection.sendall(stand_in.ACCEPTED)
        run_flow(command)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of this process
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def take_over(connection: socket.socket) -> list[str]:
    """Make the stand-in's streams, environment and directory our own; its command is the answer."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    # The kernel says who the stand-in is and how it was started, so it need not send that.
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    process = f"/proc/{int.from_bytes(credentials[:4], sys.byteorder)}"
    # No sandbox sees the socket. If one ever did, its words must not become a process out here.
    for kind in ("user", "mnt", "pid"):
        if os.readlink(f"{process}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"):
            raise SystemExit(1)
    words = _words(f"{process}/cmdline")
    if len(streams) != 3 or stand_in.__file__ not in words:
        raise SystemExit(1)
    os.chdir(f"{process}/cwd")
    os.environ.clear()
    for word in _words(f"{process}/environ"):
        name, _, value = word.partition("=")
        os.environ[name] = value
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return words[words.index(stand_in.__file__) + 2 :]


def _words(path: str) -> list[str]:
    with open(path, "rb") as f:
        return [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]


def run_flow(command: list[str]) -> None:
    """Do what ``python -u flow.py …`` does."""
    import runpy

    script = next(i for i in range(1, len(command)) if not command[i].startswith("-"))
    sys.argv = command[script:]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
