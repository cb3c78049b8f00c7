"""Locks between px processes: held by an open file, so the kernel frees them when a process dies."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px.store.hold import acquire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["acquire", "locked"]


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
