"""Streams of the target that px reads as they come: a build's log, or standard error that is searched for hints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Streams:
    """The three descriptors that the target gets, with a thread for each one that a function reads."""

    def __init__(
        self,
        stdin: int | None,
        stdout: int | Callable[[bytes], None] | None,
        stderr: int | Callable[[bytes], None] | None,
    ):
        self._threads: list[threading.Thread] = []
        self._child_ends: list[int] = []
        self._terminals: list[tuple[int, int]] = []
        self.fds = (0 if stdin is None else stdin, self._output(stdout, 1), self._output(stderr, 2))

    def _output(self, sink: int | Callable[[bytes], None] | None, own: int) -> int:
        if sink is None:
            return own
        if isinstance(sink, int):
            return sink
        read, write = self._terminal(own) if os.isatty(own) else os.pipe()
        self._child_ends.append(write)
        self._pump(read, sink)
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

    def _pump(self, fd: int, sink: Callable[[bytes], None]) -> None:
        import threading

        def work() -> None:
            while piece := _read(fd):
                sink(piece)
            os.close(fd)

        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)

    def started(self) -> None:
        """The target has its ends: close ours, or the readers would never see the end.

        The threads start only now, because a process is better forked before it has any.
        """
        for fd in self._child_ends:
            os.close(fd)
        self._child_ends.clear()
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""  # how the master of a pseudo terminal says that its other side is closed


def tee(fd: int, keep: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """A sink that passes everything on to ``fd`` and shows it to ``keep``."""

    def sink(piece: bytes) -> None:
        keep(piece)
        while piece:
            piece = piece[os.write(fd, piece) :]

    return sink
