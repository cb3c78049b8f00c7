"""The only ways in which px starts another program, or another process of its own, and waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """How a program ended.  As in :mod:`subprocess`, a negative code is the signal that killed it."""

    code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.code == 0


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    doing: str = "",
) -> Finished:
    """Run ``argv``, wait until it ends, and return its output.

    ``env`` replaces the whole environment.  ``doing`` is what the user sees if it takes long.
    """
    command = [os.fspath(a) for a in argv]
    console.debug(f"run: {' '.join(console.redact(a) for a in command)}")
    with console.waiting(doing or f"Waiting for {os.path.basename(command[0])}"):
        done = subprocess.run(
            command,
            cwd=cwd,
            env=None if env is None else dict(env),
            # Never px's own standard input: a program that waits for an answer would hang.
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
        )
    said = [(stream or b"").decode("utf-8", "replace") for stream in (done.stdout, done.stderr)]
    return Finished(done.returncode, *said)


_ENDS = (signal.SIGINT, signal.SIGTERM)


def _end_once(*_: object) -> None:
    """Ctrl-C comes from the terminal and from the process that waits: the second must not cut the tidying short."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[bool]:
    """Do the work in another process during the block, if that can be: Python's threads share one processor.

    What it could not do is for the caller to see afterwards, and to do again, with its errors.
    """
    # A copy of a process with threads may wait for ever for what one of them held.
    child = os.fork() if threading.active_count() == 1 else None
    if child == 0:
        try:
            for number in _ENDS:
                signal.signal(number, _end_once)
            work()
        finally:
            os._exit(0)
    try:
        yield child is not None
    except BaseException:
        if child:
            os.kill(child, signal.SIGTERM)
        raise
    finally:
        if child:
            os.waitpid(child, 0)


class _TerminatedError(BaseException):
    """SIGTERM or SIGHUP arrived.  A BaseException, so that no ``except Exception`` on the way stops it."""


@contextmanager
def tidy_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP run the ``finally`` blocks inside, as Ctrl-C does, before they end px.

    Without this the signals end Python at once, and half-written files stay on the disk.
    """

    def stop(number: int, _: object) -> None:
        raise _TerminatedError(number)

    # Python lets only the main thread set handlers.
    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    # A program that uses px as a library may have handlers of its own, and nohup ignores SIGHUP: both stay as they are.
    mine = [n for n in numbers if signal.getsignal(n) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, stop)
    try:
        yield
    except _TerminatedError as e:
        # End by the signal itself, not by an exit code: the parent process can tell the two apart.
        signal.signal(e.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), e.args[0])
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end px, and what it runs in a sandbox with it: passed on inside, it would be one more way to fail."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    mine = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if mine:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)
