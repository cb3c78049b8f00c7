"""Locks between px processes.  An open file holds the lock, so the kernel releases it when a process dies."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError
from px.warm.hold import acquire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.home import Home

__all__ = ["acquire", "collection", "collection_off", "locked"]


# What file systems say that have no locks: Lustre without its option flock, NFS whose server has no lock daemon.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def locked(path: Path, waiting: str = "Waiting for another px process", *, shared: bool = False) -> Iterator[None]:
    """Hold the lock during the block.  If another process has it, px says ``waiting``, and how long that takes."""
    # The first try does not wait: its failure says that there is something to wait for.
    fd = _acquire(path, shared=shared, wait=False)
    if fd is None:
        with console.waiting(waiting, at_once=True):
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


@contextmanager
def collection(home: Home) -> Iterator[None]:
    """Collect garbage during the block: nobody builds, and nobody reads what could be removed."""
    with locked(home.locks / "gc", "Waiting for a px process that is building"):
        yield


@contextmanager
def collection_off(home: Home) -> Iterator[None]:
    """No garbage is collected during the block: whoever makes objects, or reads several, needs all of them."""
    with locked(home.locks / "gc", "Waiting for px store gc, which another process runs", shared=True):
        yield
