"""Locks between px processes.  An open file holds the lock, so the kernel releases it when a process dies."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px.warm.hold import acquire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["acquire", "locked"]


@contextmanager
def locked(path: Path, *, shared: bool = False, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock during the block.  If another process has it, ``on_wait`` is called once before the wait."""
    # The first try does not wait: its failure says that there is something to wait for.
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
