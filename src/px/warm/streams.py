"""Streams of the target that px reads as they come: a build's log, or standard error that is searched for hints."""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    Sink = int | Callable[[bytes], None] | None


class Streams:
    """The three descriptors that the target gets, with a thread for each one that a function reads."""

    def __init__(self, stdin: int | None, stdout: Sink, stderr: Sink):
        self._readers: list[Reader] = []
        self._child_ends: list[int] = []
        self._terminals: list[tuple[int, int]] = []
        self.fds = (0 if stdin is None else stdin, self._output(stdout, 1), self._output(stderr, 2))

    def _output(self, sink: Sink, own: int) -> int:
        if sink is None:
            return own
        if isinstance(sink, int):
            return sink
        read, write = self._terminal(own) if os.isatty(own) else os.pipe()
        self._child_ends.append(write)
        self._readers.append(Reader(read, sink))
        return write

    def _terminal(self, like: int) -> tuple[int, int]:
        # The target must go on seeing a terminal, or it would stop colouring; a raw one passes bytes unchanged.
        import tty

        master, slave = os.openpty()
        tty.setraw(slave)
        self._terminals.append((like, master))
        self.resize()
        return master, slave

    def resize(self) -> None:
        import termios

        for like, master in self._terminals:
            termios.tcsetwinsize(master, termios.tcgetwinsize(like))

    def started(self) -> None:
        """The target has its ends: close ours, or the readers would never see the end.

        The threads start only now, because a process is better forked before it has any.
        """
        for fd in self._child_ends:
            os.close(fd)
        self._child_ends.clear()
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.join()


class Reader:
    """A thread that hands on what comes from a descriptor; :mod:`threading` would take a while to import."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]):
        self._fd, self._sink = fd, sink
        self._running = allocate_lock()

    def start(self) -> None:
        self._running.acquire()
        start_new_thread(self._work, ())

    def _work(self) -> None:
        try:
            while piece := _read(self._fd):
                self._sink(piece)
        finally:
            os.close(self._fd)
            self._running.release()

    def join(self) -> None:
        """Wait for the end, if it was started."""
        with self._running:
            pass


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""  # how the master of a pseudo terminal says that its other side is closed


class Tail:
    """A sink that passes everything on to a descriptor and keeps the end of it, to be searched when a target fails."""

    MOST = 64 * 1024

    def __init__(self, fd: int):
        self._fd = fd
        self._kept = bytearray()

    def take(self, piece: bytes) -> None:
        self._kept.extend(piece)
        del self._kept[: -self.MOST]
        while piece:
            piece = piece[os.write(self._fd, piece) :]

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")
