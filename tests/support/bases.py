"""Base locks that the mirror still serves: the shipped ones, or, once a pinned package has left it, fresh ones.

Debian's mirrors drop a package soon after a newer one is published, so pins that were made some weeks ago
may have gaps.  The tests then lock the bases again, into a directory of their own and with a warning, by the
same tool that maintainers use.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from datetime import UTC, datetime
from pathlib import Path

from px.debian import lock as locks
from px.debian.locking.check import check
from px.debian.locking.relock import Archive, load_capability_seeds, load_seeds, relock
from px.debian.mirror import mirrors
from px.platforms import host_architecture
from px.sandbox.layers.base import SHIPPED, load_base_lock

NAMES = ("debian-12", "debian-13")


def usable_locks(cache: Path) -> Path | None:
    """None if every pin can be downloaded, else a directory of locks whose pins can; asked once a day."""
    architecture = host_architecture()
    files = [SHIPPED / locks.file_name(name, architecture) for name in NAMES]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    state = cache / f"{datetime.now(UTC):%Y-%m-%d}-{digest}"
    if not state.is_dir():
        gone = [package for name in NAMES for package in _gone(name, architecture)]
        made = state.with_name(f"{state.name}.{os.getpid()}")
        made.mkdir(parents=True)
        if gone:
            warnings.warn(f"{len(gone)} pinned packages have left the mirror ({gone[0]} …): locking anew", stacklevel=2)
            _relock(made)
        if not state.is_dir():
            made.rename(state)
    return state if any(state.iterdir()) else None


def _gone(name: str, architecture: str) -> list[str]:
    lock = load_base_lock(name, architecture)
    return list(check(lock, mirrors(lock.date)[0]).gone)


def _relock(directory: Path) -> None:
    for name, seeds in load_seeds().items():
        for architecture in seeds.architectures:
            lock = relock(Archive(mirrors("")[0]), seeds, architecture, load_capability_seeds(name))
            (directory / locks.file_name(name, architecture)).write_bytes(locks.encode(lock))
