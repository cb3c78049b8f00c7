"""A sandbox that stays: commands run in it one after the other or at once, and what they leave behind remains.

px-init serves it (``engines/init/init.c``): over one socket it starts commands, sends signals, and opens files.  It is
process 1 of the sandbox, under its filter and without capabilities, so whatever it starts has the same bounds as an
ordinary run, and every path means what it means inside: a link in the sandbox cannot lead out of it.  When the owner
closes the socket, or dies, the sandbox and everything in it is gone.
"""

from __future__ import annotations

import array
import os
import socket
import stat
import struct
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Self, TypeVar

from px.engines import limits
from px.engines.remote import Pipes, Process, Reply
from px.errors import PxError
from px.warm import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from px.engines.bubblewrap import Bubblewrap
    from px.warm.spec import RunSpec

_EXEC, _SIGNAL, _OPEN = 1, 2, 3
_EVENT_REPLY, _EVENT_EXIT = 1, 2
_EXEC_TTY = 1
_REQUEST = struct.Struct("=IIii")
_EVENT = struct.Struct("=IIii")
_KILLED = 137
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Request:
    """What px-init is asked to do: its number, two arguments, and what goes with it."""

    op: int
    a: int = 0
    b: int = 0
    text: bytes = b""
    fds: Sequence[int] = ()


class Session:
    """One persistent sandbox; any thread may use it."""

    def __init__(self, engine: Bubblewrap, spec: RunSpec):
        if spec.reach is not None:
            raise PxError("PX917", engine="a persistent sandbox", flag="--network allow")
        self.spec = engine.prepared(spec)
        self._lock = threading.Lock()
        self._replies: dict[int, Reply] = {}
        self._processes: dict[int, Process] = {}
        self._last = 0
        self._ended = False
        self._group = limits.group(spec.limits)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._bubblewrap = self._start(engine, theirs)
            self._await_start()
        except BaseException:
            self._socket.close()
            self._group.close()
            raise
        self._reader = threading.Thread(target=self._read, name="px-session", daemon=True)
        self._reader.start()

    def _start(self, engine: Bubblewrap, theirs: socket.socket) -> subprocess.Popen[bytes]:
        fds = arguments.Descriptors()
        try:
            argv = arguments.command(self.spec, fds, channel=theirs.fileno(), persistent=True)
            return subprocess.Popen(
                [*self._group.prefix, os.fspath(engine.binary), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(os.environ) if self._group.prefix else {},
                pass_fds=(*fds.fds, theirs.fileno()),
                start_new_session=True,
            )
        finally:
            fds.close()

    def _await_start(self) -> None:
        if self._socket.recv(1) == b"R":
            return
        _, said = self._bubblewrap.communicate()
        problem = said.decode("utf-8", "replace").strip() or "it ended without a message"
        raise PxError("PX906", engine="bubblewrap", problem=problem)

    # --- the socket --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            try:
                data, control, _, _ = self._socket.recvmsg(_EVENT.size, socket.CMSG_SPACE(4))
            except OSError:
                data, control = b"", []
            if len(data) != _EVENT.size:
                break
            kind, number, a, b = _EVENT.unpack(data)
            if kind == _EVENT_EXIT:
                self._on_exit(a, b)
            elif kind == _EVENT_REPLY:
                self._on_reply(number, a, _descriptor(control))
        self._on_end()

    def _on_exit(self, pid: int, code: int) -> None:
        with self._lock:
            process = self._processes.pop(pid, None)
        if process is not None:  # else an orphan that process 1 inherited
            process.ended(code)

    def _on_reply(self, number: int, value: int, fd: int) -> None:
        with self._lock:
            reply = self._replies.pop(number)
            # Known before the next event is read, which may be its end.
            if reply.process is not None and value > 0:
                self._processes[value] = reply.process
        reply.arrived(value, fd)

    def _on_end(self) -> None:
        """Nobody waits for a sandbox that is gone."""
        with self._lock:
            self._ended = True
            replies, processes = list(self._replies.values()), list(self._processes.values())
            self._replies.clear()
            self._processes.clear()
        for reply in replies:
            reply.arrived(None, -1)
        for process in processes:
            process.ended(_KILLED)

    def _ask(self, request: _Request, process: Process | None = None) -> tuple[int, int]:
        reply = Reply(process)
        with self._lock:
            if self._ended:
                raise _gone()
            self._last += 1
            number = self._last
            self._replies[number] = reply
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", request.fds))] if request.fds else []
            head = _REQUEST.pack(request.op, number & 0xFFFFFFFF, request.a, request.b)
            try:
                self._socket.sendmsg([head, request.text], rights)
            except OSError as e:
                del self._replies[number]
                raise _gone() from e
        value, fd = reply.wait()
        if value is None:
            raise _gone()
        if value < 0:
            raise OSError(-value, os.strerror(-value))
        return value, fd

    # --- commands ----------------------------------------------------------------------------------------------

    def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        tty: bool = False,
    ) -> Process:
        """Start a command in a session (setsid) of its own.

        ``env`` adds to the sandbox's own variables.  With ``tty`` the command gets a pseudo terminal of the
        sandbox, whose other side is the process's stdin and stdout; without, three pipes.
        """
        variables = {**arguments.environment(self.spec), **(env or {})}
        command = _command(argv, variables, cwd or self.spec.cwd)
        pipes = Pipes.terminal(self._terminal()) if tty else Pipes.plain()
        process = Process(pipes, self._signal)
        try:
            blob = arguments.Descriptors()
            try:
                fd = int(blob.data("px-command", command))
                fds = (fd, *pipes.theirs)
                process.pid, _ = self._ask(_Request(_EXEC, _EXEC_TTY if tty else 0, fds=fds), process)
            finally:
                blob.close()
                pipes.close_theirs()
        except BaseException:
            process.close()
            raise
        return process

    def _signal(self, pid: int, signal: int) -> None:
        try:
            self._ask(_Request(_SIGNAL, pid, signal))
        except ProcessLookupError:
            return  # it has just ended by itself

    def _terminal(self) -> tuple[int, int]:
        import fcntl
        import termios

        master = self.open("/dev/ptmx", os.O_RDWR)
        os.set_blocking(master, True)
        fcntl.ioctl(master, 0x40045431, struct.pack("i", 0))  # TIOCSPTLCK: unlock the other side
        (number,) = struct.unpack("i", fcntl.ioctl(master, getattr(termios, "TIOCGPTN", 0x80045430), bytes(4)))
        slave = self.open(f"/dev/pts/{number}", os.O_RDWR)
        os.set_blocking(slave, True)
        return master, slave

    # --- files -------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of ``path`` as the sandbox's user would get it; the caller closes it."""
        encoded = os.fsencode(path if path.startswith("/") else f"{self.spec.cwd}/{path}")
        if len(encoded) > 4095 or b"\0" in encoded:
            raise ValueError(path)
        _, fd = self._ask(_Request(_OPEN, flags, mode, encoded))
        return fd

    def read_bytes(self, path: str) -> bytes:
        fd = self.open(path, os.O_RDONLY)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(22, "not a regular file", path)
        with os.fdopen(fd, "rb") as f:
            return f.read()

    def write_bytes(self, path: str, content: bytes, mode: int = 0o644) -> None:
        fd = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "wb") as f:
            f.write(content)

    def list(self, path: str) -> dict[str, os.stat_result]:
        """Name -> what it is (of links: the link itself), for a directory."""

        def entries(fd: int) -> dict[str, os.stat_result]:
            return {name: os.stat(name, dir_fd=fd, follow_symlinks=False) for name in sorted(os.listdir(fd))}

        return self._in_directory(path, entries)

    def make_directory(self, path: str, mode: int = 0o755) -> None:
        parent, name = _split(path)
        self._in_directory(parent, lambda fd: os.mkdir(name, mode, dir_fd=fd))

    def remove(self, path: str) -> None:
        """Remove a file, a link, or an empty directory."""
        parent, name = _split(path)

        def work(fd: int) -> None:
            directory = stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
            (os.rmdir if directory else os.unlink)(name, dir_fd=fd)

        self._in_directory(parent, work)

    def rename(self, source: str, target: str) -> None:
        (from_parent, from_name), (to_parent, to_name) = _split(source), _split(target)

        def work(fd: int) -> None:
            self._in_directory(to_parent, lambda to: os.rename(from_name, to_name, src_dir_fd=fd, dst_dir_fd=to))

        self._in_directory(from_parent, work)

    def _in_directory(self, path: str, work: Callable[[int], _T]) -> _T:
        # The directory is found inside; with one name relative to it, and no link followed, nothing leads outside.
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return work(fd)
        finally:
            os.close(fd)

    # --- the end -----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return not self._ended

    def destroy(self) -> None:
        """End the sandbox with everything in it, and wait until it is gone."""
        with suppress(OSError):  # it may be gone already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._bubblewrap.communicate()
        self._reader.join()
        self._socket.close()
        self._group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


def _gone() -> PxError:
    return PxError("PX906", engine="bubblewrap", problem="the sandbox has ended")


def _command(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> bytes:
    words = [cwd, str(len(argv)), str(len(env)), *argv, *(f"{name}={value}" for name, value in env.items())]
    if not argv or any("\0" in word for word in words):
        raise ValueError("a command needs a program, and no NUL bytes")
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _descriptor(control: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            return int(array.array("i", data[:4])[0])
    return -1


def _split(path: str) -> tuple[str, str]:
    parsed = PurePosixPath(path)
    if parsed.name in ("", ".", ".."):
        raise ValueError(path)
    return str(parsed.parent), parsed.name
