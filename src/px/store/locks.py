"""Locks between px processes: held by an open file, so the kernel frees them when a process dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def acquire(path: Path, *, shared: bool = False, wait: bool = True) -> int | None:
    """Lock ``path`` and return the descriptor that holds the lock, or None if it is taken and we may not wait.

    A lock file can be removed by whoever collects garbage; the lock counts only if the name still means
    the file that was locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, mode if wait else mode | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        try:
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)


@contextmanager
def locked(path: Path, *, shared: bool = False, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock for the block; ``on_wait`` is called once if somebody else has it."""
    fd = acquire(path, shared=shared, wait=False)
    if fd is None:
        if on_wait is not None:
            on_wait()
        fd = acquire(path, shared=shared)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def hold_across_exec(path: Path) -> None:
    """Keep a shared lock on ``path`` for the life of this process and of the program that it becomes.

    ``px run`` replaces itself by its target; the descriptor stays open in the target, so that garbage
    collection sees the env in use until the target ends.  A high number keeps it out of the way of
    programs that count on low ones.
    """
    fd = acquire(path, shared=True, wait=False)
    if fd is not None:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD, 200)
        os.set_inheritable(high, True)
        os.close(fd)
