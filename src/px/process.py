"""The one way px starts another program and waits for it."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """How a program ended; a negative code is the signal that ended it, as in :mod:`subprocess`."""

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
    show: bool = False,
) -> Finished:
    """Run ``argv`` to its end and return what it said.

    ``env`` replaces the environment; ``show`` lets standard error through to the user as it comes
    (progress of long work) instead of capturing it.
    """
    command = [os.fspath(a) for a in argv]
    console.debug(f"run: {' '.join(console.redact(a) for a in command)}")
    done = subprocess.run(
        command,
        cwd=cwd,
        env=None if env is None else dict(env),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        check=False,
    )
    said = [(stream or b"").decode("utf-8", "replace") for stream in (done.stdout, done.stderr)]
    return Finished(done.returncode, *said)


class _TerminatedError(BaseException):
    """Px was told to end; not an error that anything but :func:`tidy_end` may catch."""


@contextmanager
def tidy_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP undo what is half-made, as Ctrl-C does, before they end px the way they always do."""
    import signal
    import threading

    def stop(number: int, _: object) -> None:
        raise _TerminatedError(number)

    # Only the main thread may set handlers.
    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    mine = [n for n in numbers if signal.getsignal(n) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, stop)
    try:
        yield
    except _TerminatedError as e:
        signal.signal(e.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), e.args[0])
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
