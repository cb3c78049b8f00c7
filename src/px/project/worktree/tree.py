"""The app layer: the working tree as it goes into an image.

:mod:`px.project.worktree.files` says which files; this module reads and hashes them.  Directories exist only
for what is in them, modes are 0644 and 0755, and no time, owner or umask of this machine gets in, so two
clones of a commit give the same layer.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from px.project.worktree.files import cannot, chosen
from px.store.canonical import Value, oid_of
from px.store.tree import Entry, UnsafePathError, check_link, native

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.errors import PxError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class AppTree:
    """The files of the app layer, hashed: a tree spec over the working tree itself."""

    root: Path
    entries: tuple[Entry, ...]

    @cached_property
    def oid(self) -> str:
        """The identity of the content."""
        return oid_of("layer", {"tree": cast("Value", [list(entry) for entry in self.entries])})

    @property
    def size(self) -> int:
        return sum(int(entry[3]) for entry in self.entries if entry[0] == "f")


def scan(root: Path, *, exclude: Sequence[str] = (), outputs: Sequence[Path] = (), clean: bool = False) -> AppTree:
    """Choose and hash the files of the app layer; ``exclude`` are the manifest's own patterns."""
    entries: dict[str, Entry] = {}
    for path, executable in sorted(chosen(root, exclude=exclude, outputs=outputs, clean=clean)):
        parent = path.rpartition("/")[0]
        while parent and parent not in entries:
            entries[parent] = ["d", parent, 0o755]
            parent = parent.rpartition("/")[0]
        entries[path] = _entry(root, path, executable=executable)
    return AppTree(root, tuple(entries[path] for path in sorted(entries)))


def _entry(root: Path, path: str, *, executable: bool | None) -> Entry:
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise cannot(shown, "its name is not UTF-8", "Rename it.") from None
    name = native(root, path)
    try:
        return _file(name, path, executable=executable)
    except PermissionError:
        raise cannot(path, "it cannot be read", f"Make it readable: chmod u+r {path}") from None
    except FileNotFoundError:
        raise _changed(path, "it was removed while it was packed") from None
    except OSError as e:
        if e.errno == errno.ELOOP:  # what O_NOFOLLOW says to a symbolic link
            return ["l", path, _target(name, path)]
        raise


def _target(name: bytes, path: str) -> str:
    target = os.readlink(name).decode("utf-8", "surrogateescape")
    problem = f"the link points out of the tree, to {target}"
    remedy = "Make it a relative link to something inside, or replace it by a copy of the file."
    if target.startswith("/"):
        raise cannot(path, problem, remedy)
    try:
        target.encode()
        check_link(path, target)
    except (UnsafePathError, UnicodeEncodeError):
        raise cannot(path, problem, remedy) from None
    return target


def _file(name: bytes, path: str, *, executable: bool | None) -> Entry:
    digest, size = hashlib.sha256(), 0
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        before = os.fstat(fd)
        ask = min(before.st_size + 1, _CHUNK)
        while chunk := os.read(fd, ask):
            digest.update(chunk)
            size += len(chunk)
            if len(chunk) < ask:  # the end, one call earlier: it counts when there are 100,000 files
                break
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISREG(after.st_mode):
        raise cannot(path, "it is neither a file, a directory nor a link", "Remove it.")
    if size != after.st_size or _stamp(before) != _stamp(after):
        raise _changed(path, "it changed while it was packed")
    runs = bool(after.st_mode & stat.S_IXUSR) if executable is None else executable
    mode = 0o755 if runs else 0o644
    return ["f", path, mode, size, digest.hexdigest()]


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode


def _changed(path: str, problem: str) -> PxError:
    return cannot(path, problem, "Let it come to rest, then pack again.")
