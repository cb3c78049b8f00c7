"""Locks between px processes.  An open file holds the lock, so the kernel releases it when a process dies."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px.errors import PxError
from px.warm.hold import acquire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["acquire", "locked"]


# What file systems say that have no locks: Lustre without its option flock, NFS whose server has no lock daemon.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def locked(path: Path, *, shared: bool = False, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock during the block.  If another process has it, ``on_wait`` is called once before the wait."""
    # The first try does not wait: its failure says that there is something to wait for.
    fd = _acquire(path, shared=shared, wait=False)
    if fd is None:
        if on_wait is not None:
            on_wait()
        fd = _acquire(path, shared=shared, wait=True)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _acquire(path: Path, *, shared: bool, wait: bool) -> int | None:
    try:
        return acquire(path, shared=shared, wait=wait)
    except OSError as e:
        if e.errno not in _NO_LOCKS:
            raise
        raise PxError("PX812", path=path.parent, reason=e.strerror) from e
