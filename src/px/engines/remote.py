"""A command in a persistent sandbox, as the owner sees it: pipes, an end, signals."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self

from px.process import Finished

if TYPE_CHECKING:
    from collections.abc import Callable


class Reply:
    """What px-init answered to one request; the value is None when the sandbox ended instead."""

    def __init__(self, process: Process | None):
        self.process = process
        self._here = threading.Event()
        self._value: int | None = None
        self._fd = -1

    def arrived(self, value: int | None, fd: int) -> None:
        self._value, self._fd = value, fd
        self._here.set()

    def wait(self) -> tuple[int | None, int]:
        self._here.wait()
        return self._value, self._fd


@dataclass(frozen=True)
class Pipes:
    """Both sides of a command's three streams."""

    theirs: tuple[int, int, int]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes] | None

    @classmethod
    def plain(cls) -> Self:
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe(), os.pipe()
        return cls(
            (in_read, out_write, err_write),
            os.fdopen(in_write, "wb", 0),
            os.fdopen(out_read, "rb", 0),
            os.fdopen(err_read, "rb", 0),
        )

    @classmethod
    def terminal(cls, sides: tuple[int, int]) -> Self:
        master, slave = sides
        again = os.dup(master)
        return cls((slave, slave, slave), os.fdopen(master, "wb", 0), os.fdopen(again, "rb", 0), None)

    def close_theirs(self) -> None:
        for fd in set(self.theirs):
            os.close(fd)

    def close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()


class Process:
    """A running command; like :class:`subprocess.Popen` where both can do the same."""

    def __init__(self, pipes: Pipes, send: Callable[[int, int], None]):
        self.pid = 0
        """Inside the sandbox."""
        self.stdin, self.stdout, self.stderr = pipes.stdin, pipes.stdout, pipes.stderr
        self._pipes = pipes
        self._send = send
        self._end = threading.Event()
        self.returncode: int | None = None

    def ended(self, code: int) -> None:
        self.returncode = code
        self._end.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, 128 + n for signal n; ``TimeoutError`` when it still runs after ``timeout`` seconds."""
        if not self._end.wait(timeout):
            raise TimeoutError
        return 0 if self.returncode is None else self.returncode

    def send_signal(self, number: int) -> None:
        """Signal the command and every process of its group."""
        if self.returncode is None:
            self._send(-self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def resize(self, rows: int, columns: int) -> None:
        import termios

        termios.tcsetwinsize(self.stdout.fileno(), (rows, columns))

    def communicate(self, data: bytes = b"", timeout: float | None = None) -> Finished:
        """Write ``data``, read everything, wait; when that takes longer than ``timeout``, kill it and say so."""
        pieces: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        work = [threading.Thread(target=self._feed, args=(data,), daemon=True)]
        for name, stream in (("stdout", self.stdout), ("stderr", self.stderr)):
            if stream is not None:
                work.append(threading.Thread(target=self._drain, args=(stream, pieces, name), daemon=True))
        for thread in work:
            thread.start()
        try:
            code = self.wait(timeout)
        except TimeoutError:
            self.kill()
            self.wait()
            raise
        for thread in work:
            thread.join(5)  # a background process may keep the pipes open longer than the command runs
        self.close()
        return Finished(code, *(pieces[name].decode("utf-8", "replace") for name in ("stdout", "stderr")))

    def _feed(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self.stdin.fileno(), data) :]
            self.stdin.close()
        except (OSError, ValueError):
            return  # the command does not want more

    @staticmethod
    def _drain(stream: IO[bytes], pieces: dict[str, bytes], name: str) -> None:
        try:
            while piece := stream.read(65536):
                pieces[name] += piece
        except (OSError, ValueError):
            return  # the other side of a terminal is closed

    def close(self) -> None:
        self._pipes.close()
