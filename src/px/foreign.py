"""Reading back what a sandboxed process or a build could have written: the one place where px does that.

Whoever wrote such a directory may have put anything there under the name that px expects: a link to a file of the
caller's, a pipe that never ends, a file that fills the memory.  So px names the directory, and the file in it by one
bare name.  Nothing is opened through a link.  Only a regular file counts, up to a size that the caller gives.

A directory is a path or, where it lies in another one that is not px's alone, the descriptor that :func:`folder` gives.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 1 << 20
# Without O_NONBLOCK, opening a pipe waits until somebody opens its other end.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def read(directory: Path | int, name: str, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes."""
    with opened(directory, name) as fd:
        return b"".join(_pieces(fd, directory, name, limit))


def copy(directory: Path | int, name: str, target: Path, limit: int) -> None:
    """Copy such a file to ``target``, which is new and in a place that only px can write."""
    with opened(directory, name) as fd, open(target, "xb") as out:
        out.writelines(_pieces(fd, directory, name, limit))


@contextmanager
def opened(directory: Path | int, name: str) -> Iterator[int]:
    """A descriptor that reads a regular file.  Its size is not bounded, and it may grow while it is read."""
    with _opened(directory, name, os.O_RDONLY) as fd:
        _check(fd, directory, name)
        yield fd


@contextmanager
def appending(directory: Path | int, name: str) -> Iterator[int]:
    """A descriptor that appends to a regular file, which is made if it is not there."""
    with _opened(directory, name, _APPEND) as fd:
        # Inside, a second name for a file of the working tree costs nothing, and needs no link.
        if _check(fd, directory, name).st_nlink != 1:
            raise refused(directory, name, "it is a second name of another file")
        yield fd


@contextmanager
def folder(directory: Path | int, name: str, *, make: bool = False) -> Iterator[int]:
    """A descriptor of a directory inside ``directory``, which is made if asked for."""
    if make:
        with suppress(FileExistsError), _within(directory) as within:
            os.mkdir(_bare(directory, name), 0o755, dir_fd=within)
    with _opened(directory, name, _DIRECTORY) as fd:
        yield fd


def remove(directory: Path) -> None:
    """Remove a tree, however deep and whatever its modes, without following a link.

    Every directory in it is moved to the top before it is emptied, so that no path ever gets long.
    """
    unique = os.urandom(16).hex()
    with _within(directory) as top:
        pending = [""]  # names of directories at the top; the first is the top itself
        moved = 0
        while pending:
            name = pending.pop()
            with _opened(top, name, _DIRECTORY) if name else _within(top) as fd:
                with os.scandir(fd) as found:
                    entries = list(found)
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=fd)
                        continue
                    _unlock(entry.name, fd)
                    moved += 1
                    os.rename(entry.name, f"{unique}-{moved}", src_dir_fd=fd, dst_dir_fd=top)
                    pending.append(f"{unique}-{moved}")
            if name:
                os.rmdir(name, dir_fd=top)
    directory.rmdir()


def _unlock(name: str, within: int) -> None:
    """Let the caller, whose directory it is, write to it: a directory cannot be moved or emptied otherwise."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def refused(directory: Path | int, name: str, problem: str) -> PxError:
    where = Path(os.readlink(f"/proc/self/fd/{directory}")) if isinstance(directory, int) else directory
    return PxError("PX909", path=where / name, problem=problem)


@contextmanager
def _opened(directory: Path | int, name: str, flags: int) -> Iterator[int]:
    bare = _bare(directory, name)
    with _within(directory) as within:
        fd = _open(directory, bare, flags, within)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _within(directory: Path | int) -> Iterator[int]:
    if isinstance(directory, int):
        yield directory
        return
    fd = _open(directory, "", _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _open(directory: Path | int, name: str, flags: int, within: int | None = None) -> int:
    try:
        return os.open(name or os.fspath(directory), flags | _SAFELY, 0o644, dir_fd=within)  # type: ignore[arg-type]
    except OSError as e:
        # What the kernel calls a link depends on what was to be opened; a pipe that nobody reads has its own number.
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            problem = "it is a link, or not a directory" if flags & os.O_DIRECTORY else "it is a link"
        else:
            problem = "it is not a regular file" if e.errno in (errno.ENXIO, errno.EISDIR) else str(e.strerror)
        raise refused(directory, name, problem) from e


def _bare(directory: Path | int, name: str) -> str:
    # Surrogates, which stand for bytes that are not UTF-8, are fine; whatever else cannot be a name is not.
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(os.fsencode(name)) > 255:
        raise refused(directory, repr(name), "this is not the bare name of a file")
    return name


def _check(fd: int, directory: Path | int, name: str) -> os.stat_result:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise refused(directory, name, "it is not a regular file")
    return found


def _pieces(fd: int, directory: Path | int, name: str, limit: int) -> Iterator[bytes]:
    left = limit
    while piece := os.read(fd, min(_PIECE, left + 1)):
        left -= len(piece)
        if left < 0:
            raise refused(directory, name, f"it is larger than {limit} bytes")
        yield piece
