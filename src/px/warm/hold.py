"""Locks: files that a process holds open.

They lie in this folder because ``px run`` takes one on its way to becoming its target: while the target lives,
garbage collection sees that its env is in use.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def acquire(path: str | Path, *, shared: bool = False, wait: bool = True) -> int | None:
    """Lock ``path`` and return the descriptor that holds the lock; None if it is taken and we may not wait.

    A lock file can be removed by whoever collects garbage; the lock counts only if the name still means
    the file that was locked.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
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


def use_lock(directory: str) -> str:
    """The lock that says that a process runs in an env or image."""
    return os.path.join(os.path.dirname(directory), ".locks", os.path.basename(directory))


def hold_across_exec(path: str) -> None:
    """Keep a shared lock on ``path`` for the life of this process and of the program that it becomes.

    ``px run`` replaces itself by its target; the descriptor stays open in the target, so that garbage
    collection sees the env in use until the target ends.  A high number keeps it out of the way of
    programs that count on low ones.
    """
    try:
        fd = acquire(path, shared=True, wait=False)
    except OSError:
        return  # a store that cannot be written cannot be collected either
    if fd is not None:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD, 200)
        os.set_inheritable(high, True)
        os.close(fd)
