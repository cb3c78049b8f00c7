"""Atomic writes: a reader sees the old file or the whole new file, never a part of it."""

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
    """Turn a full disk, a read-only disk or a directory that cannot be made into PX810 or PX811."""
    try:
        yield
    except OSError as e:
        # A quota that is used up (EDQUOT) is a full disk to the user.
        if e.errno in _FULL:
            raise PxError("PX810", path=where) from e
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS) or not os.path.isdir(where):
            raise PxError("PX811", path=e.filename or where, reason=e.strerror) from e
        raise


@contextmanager
def open_atomically(path: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` when the block ends without an exception.

    It is written beside ``path``, because a rename is atomic only within one file system.  ``durable`` also makes
    sure that it survives a power failure; caches do not need that.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is chosen here and not by tempfile.  If Ctrl-C came between the creation of the file and the
    # assignment of its name, nothing would remove the file.
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        with open(temporary, "xb", opener=_private) as f:
            yield f
            f.flush()
            # Not in open(), where the umask would count; before the rename, so that nobody sees other permissions.
            os.fchmod(f.fileno(), mode)
            if durable:
                os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException as e:  # also for Ctrl-C
        temporary.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.filename == os.fspath(temporary):
            e.filename = os.fspath(path)  # the name that the user knows
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    with open_atomically(path, mode=mode, durable=durable) as f:
        f.write(content)


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    write_atomically(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), durable=durable)


def sync_file_system(path: Path) -> None:
    """Flush everything that was written under ``path``.

    One syncfs(2) for a whole tree is much faster than one fsync for each of its files.  Python has no function for it.
    """
    import ctypes

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # CDLL(None) is the C library that this process already uses.
        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fspath(path))
    finally:
        os.close(fd)
