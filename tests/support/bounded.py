"""Bounds for tests of hostile input: so much memory and so many seconds, and not more."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory(more: int) -> Iterator[None]:
    """At most ``more`` bytes in addition to what this process has: beyond that Python raises MemoryError."""
    had = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, had[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, had)


@contextmanager
def no_hang(seconds: int = 60) -> Iterator[None]:
    """Ends what would never end.  What works needs a small part of this time, on any machine."""

    def stop(*_: object) -> None:
        raise AssertionError(f"still not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
