"""The target's three streams: what it gets of the caller's, and what px reads on the way.

* Pipes, sockets and terminals are handed over as they are.  (Where all three are one terminal, the target gets
  another one instead: :mod:`px.warm.terminal`.)
* A descriptor of a file is a way to that file.  The target could open ``/proc/self/fd/0`` again for writing, change
  the file's mode, read and replace what a log had before, or enter a directory.  So no file is handed over: the target
  gets a pipe, and a thread carries the bytes.
* What px reads, a build's log or output that is searched for hints, comes through a pipe, too.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_PIECE = 65536
_NAMES = ("standard input", "standard output", "standard error")
# The kinds of file that a descriptor can lead to; the module stat takes a while to import.
_KIND, _REGULAR, _DIRECTORY, _BLOCKS = 0o170000, 0o100000, 0o040000, 0o060000
_GONE = (5, 9, 32)  # EIO, EBADF, EPIPE: nobody is there to read it, which the target finds out by itself


class Tail:
    """As a stream: what the target writes goes where it would have gone, and px keeps the end of it to search it."""

    MOST = 64 * 1024

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, piece: bytes) -> None:
        self._kept.extend(piece)
        del self._kept[: -self.MOST]

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace").replace("\r\n", "\n")  # a terminal ends lines with both


if TYPE_CHECKING:
    Sink = int | Callable[[bytes], None] | Tail | None


class Streams:
    """The three descriptors that the target gets, with a thread for each one whose bytes px carries."""

    def __init__(self, stdin: int | None, stdout: Sink, stderr: Sink):
        self._carriers: list[Feeder | Reader] = []
        self._child_ends: list[int] = []
        self.tail = next((sink for sink in (stderr, stdout) if isinstance(sink, Tail)), None)
        self.fds = (self._input(stdin), *self._outputs(stdout, stderr))

    def _input(self, given: int | None) -> int:
        if given is not None or not _is_file(0):
            return given or 0
        feeder = Feeder(0)
        self._carriers.append(feeder)
        return feeder.read_end

    def _outputs(self, stdout: Sink, stderr: Sink) -> tuple[int, int]:
        ours = all(sink is None or isinstance(sink, Tail) for sink in (stdout, stderr))
        if ours and _are_one(1, 2) and not os.isatty(2):
            # One pipe: two could not keep the order of what goes to one place.
            fd = self._output(stderr or stdout, 2)
            return (1, 2) if fd == 2 else (fd, fd)
        return self._output(stdout, 1), self._output(stderr, 2)

    def _output(self, sink: Sink, own: int) -> int:
        if isinstance(sink, int):
            return sink
        given = sink is None or isinstance(sink, Tail)
        if given and (os.isatty(own) or (sink is None and not _is_file(own))):
            return own
        read, write = os.pipe()
        self._child_ends.append(write)
        self._carriers.append(Reader(read, sink, own))
        return write

    def started(self) -> None:
        """The target has its ends: close ours, or the readers would never see the end.

        The threads start only now, because a process is better forked before it has any.
        """
        for fd in self._child_ends:
            os.close(fd)
        self._child_ends.clear()
        for carrier in self._carriers:
            carrier.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        problems = [problem for carrier in self._carriers if (problem := carrier.join())]
        if problems and failed is None:
            from px.errors import PxError

            raise PxError("PX910", problem=problems[0])


def are_one_terminal(fds: tuple[int, int, int]) -> bool:
    return all(os.isatty(fd) for fd in fds) and len({os.fstat(fd).st_rdev for fd in fds}) == 1


def _is_file(fd: int) -> bool:
    try:
        return os.fstat(fd).st_mode & _KIND in (_REGULAR, _DIRECTORY, _BLOCKS)
    except OSError:
        return False  # the caller closed it


def _are_one(first: int, second: int) -> bool:
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False


class Reader:
    """A thread that hands on what the target writes; :mod:`threading` would take a while to import."""

    def __init__(self, fd: int, sink: Callable[[bytes], None] | Tail | None, own: int):
        self._fd, self._sink, self._own = fd, sink, own
        self._problem = ""
        self._running = allocate_lock()

    def start(self) -> None:
        self._running.acquire()
        start_new_thread(self._work, ())

    def _work(self) -> None:
        try:
            while piece := os.read(self._fd, _PIECE):
                hand_on(piece, self._sink, self._own)
        except OSError as e:
            if e.errno not in _GONE:
                self._problem = f"{_NAMES[self._own]}: {e.strerror}"
        finally:
            os.close(self._fd)  # if it could not be handed on, the target's next write fails
            self._running.release()

    def join(self) -> str:
        """Wait for the end, if it was started; what went wrong, if anything did."""
        with self._running:
            return self._problem


def hand_on(piece: bytes, sink: Callable[[bytes], None] | Tail | None, own: int) -> None:
    if callable(sink):
        sink(piece)
        return
    if sink is not None:
        sink.add(piece)
    while piece:
        piece = piece[os.write(own, piece) :]


class Feeder:
    """A thread that gives the target a file's content through a pipe.

    Afterwards the caller's place in the file is where the target stopped reading, as if it had had the file itself: a
    shell's ``while read line; do px run …; done < file`` loses no line.
    """

    def __init__(self, fd: int):
        self._fd = fd
        self._sent, self._begin = 0, _position(fd)
        self._over = False
        self.read_end, self._write_end = os.pipe()

    def start(self) -> None:
        start_new_thread(self._work, (self._write_end,))
        self._write_end = -1  # the thread's own now

    def _work(self, pipe: int) -> None:
        try:
            while not self._over and (sent := os.sendfile(pipe, self._fd, self._begin + self._sent, _PIECE)):
                self._sent += sent
        except OSError:
            return  # a directory, for example: the target sees the end
        finally:
            os.close(pipe)

    def join(self) -> str:
        """Stop, and see what the target left in the pipe; its end says that the thread has ended."""
        self._over = True
        if self._write_end >= 0:
            os.close(self._write_end)
        left = 0
        while piece := os.read(self.read_end, _PIECE):
            left += len(piece)
        os.close(self.read_end)
        if self._sent > left:
            os.lseek(self._fd, self._begin + self._sent - left, os.SEEK_SET)
        return ""


def _position(fd: int) -> int:
    try:
        return os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return 0
