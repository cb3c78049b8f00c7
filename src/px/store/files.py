"""Whole-file writes: the new content appears at once, or not at all."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn a full or read-only disk, or a place that cannot be made, into an error that says so."""
    try:
        yield
    except OSError as e:
        if e.errno in _FULL:
            raise PxError("PX810", path=where) from e
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS) or not os.path.isdir(where):
            raise PxError("PX811", path=e.filename or where, reason=e.strerror) from e
        raise


@contextmanager
def open_atomically(path: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that replaces ``path`` when the block ends well: written beside it, flushed, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is known before the file is there, so that no moment is left in which an interruption forgets it.
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        with open(temporary, "xb", opener=_private) as f:
            yield f
            f.flush()
            os.fchmod(f.fileno(), mode)
            if durable:
                os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace ``path`` by ``content`` in one step."""
    with open_atomically(path, mode=mode, durable=durable) as f:
        f.write(content)


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    write_atomically(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), durable=durable)


def sync_file_system(path: Path) -> None:
    """Flush what was written under ``path``: one call for a whole tree instead of one per file."""
    import ctypes

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fspath(path))
    finally:
        os.close(fd)
