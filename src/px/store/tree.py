"""File trees: how they are described, written, checked and removed.

The spec of a tree is a sorted list of entries.  It has no times, owners or inode numbers, so the same content has the
same spec on every machine:

* ``["d", path, mode]``                  a directory
* ``["f", path, mode, size, sha256]``    a file
* ``["l", path, target]``                a symbolic link
* ``["h", path, target]``                a hard link to another file of the tree

Paths are relative, use ``/``, and are UTF-8 whatever the locale is.  On disk the tree is read-only; an image gets the
modes of the spec.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from typing import TYPE_CHECKING, TypeAlias

from px import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from px.store.canonical import Value

Entry: TypeAlias = "list[str | int]"


class UnsafePathError(ValueError):
    """A path or link would leave the tree, or a path has two entries."""


def native(root: Path, path: str) -> bytes:
    """The file name of a path in the tree, as UTF-8.  Bytes, because ``str`` names depend on the locale."""
    return os.fsencode(root) + b"/" + path.encode("utf-8", "surrogateescape")


def check_path(path: str) -> str:
    """Return ``path`` if it is relative, normalised and stays in the tree; otherwise raise."""
    if not path or path.startswith("/") or "\0" in path:
        raise UnsafePathError(f"absolute or empty path {path!r}")
    if posixpath.normpath(path) != path or path == ".." or path.startswith("../"):
        raise UnsafePathError(f"path {path!r} is not normalised or leaves the tree")
    # A character has four bytes at most, so shorter paths need no closer look.
    if len(path) > bounds.NAME // 4:
        _check_length(path)
    return path


def _check_length(path: str) -> None:
    parts = path.encode("utf-8", "surrogateescape").split(b"/")
    if len(parts) > bounds.DEPTH or max(map(len, parts)) > bounds.NAME or sum(map(len, parts)) > bounds.PATH:
        raise UnsafePathError(f"path {path[:100]!r}… is too long or too deep")


def check_link(path: str, target: str) -> None:
    """Refuse a relative symbolic link that leaves the tree.  The caller decides about absolute links."""
    check_target(path, target)
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if resolved == ".." or resolved.startswith("../"):
        raise UnsafePathError(f"link {path!r} -> {target!r} leaves the tree")


def check_target(path: str, target: str) -> None:
    """Refuse what the kernel would refuse, with an error that says so."""
    if not target or "\0" in target or len(target.encode("utf-8", "surrogateescape")) > bounds.PATH:
        raise UnsafePathError(f"link {path!r} has no target that a link can have")


def check_plain_link(path: str, target: str) -> None:
    """Refuse a link that leaves the tree by its name, or that could do so by way of other links.

    ``a/..`` is where it seems to be only if ``a`` is no link.  Where ``..`` stands at the beginning alone, it goes up
    from the directory that the link is in, and from there on every link leads down.
    """
    if target.startswith("/"):
        raise UnsafePathError(f"link {path!r} points to the absolute path {target[:100]!r}")
    check_link(path, target)
    parts = target.split("/")
    if ".." in parts[next((i for i, part in enumerate(parts) if part != ".."), len(parts)) :]:
        raise UnsafePathError(f"link {path!r} -> {target!r} goes up after it went down")


class TreeWriter:
    """Writes a new tree under ``root`` and builds its spec.  Files are hashed while they are written."""

    def __init__(self, root: Path):
        self.root = root
        self._entries: dict[str, Entry] = {}
        root.mkdir(mode=0o755, parents=True, exist_ok=True)

    def __contains__(self, path: str) -> bool:
        return path in self._entries

    def entry(self, path: str) -> Entry | None:
        return self._entries.get(path)

    def paths(self) -> Iterable[str]:
        return self._entries.keys()

    def _claim(self, path: str) -> bytes:
        check_path(path)
        if path in self._entries:
            raise UnsafePathError(f"two entries for {path!r}")
        # Archives need not have entries for their directories: a missing parent is made.  A parent that is a link
        # is refused, because writing through it could leave the tree.
        parent = posixpath.dirname(path)
        if parent:
            found = self._entries.get(parent)
            if found is None:
                self.directory(parent)
            elif found[0] != "d":
                raise UnsafePathError(f"{path!r} lies below {parent!r}, which is not a directory")
        return native(self.root, path)

    def directory(self, path: str, mode: int = 0o755) -> None:
        found = self._entries.get(path)
        if found is not None and found[0] == "d":
            # It may have been made with the default mode before, as the parent of a file.
            found[2] = mode
            return
        os.mkdir(self._claim(path), 0o755)
        self._entries[path] = ["d", path, mode]

    def file(self, path: str, content: bytes | Iterable[bytes | memoryview], mode: int = 0o644) -> str:
        """Write one file and return its sha256."""
        name = self._claim(path)
        digest, size = hashlib.sha256(), 0
        # O_EXCL and O_NOFOLLOW: never write through something that is already there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        # The file is created read-only.  This descriptor may write to it all the same.
        fd = os.open(name, flags, 0o555 if mode & 0o111 else 0o444)
        try:
            for chunk in [content] if isinstance(content, bytes) else content:
                digest.update(chunk)
                size += len(chunk)
                view = memoryview(chunk)
                while view:  # write(2) may take less than it was given
                    view = view[os.write(fd, view) :]
            os.fchmod(fd, 0o555 if mode & 0o111 else 0o444)  # gives back what the umask took
        finally:
            os.close(fd)
        self._entries[path] = ["f", path, mode, size, digest.hexdigest()]
        return digest.hexdigest()

    def symlink(self, path: str, target: str) -> None:
        check_target(path, target)
        os.symlink(target.encode("utf-8", "surrogateescape"), self._claim(path))
        self._entries[path] = ["l", path, target]

    def hardlink(self, path: str, target: str) -> None:
        # In a tar the target of a hard link comes before the link, so it must be known here.
        found = self._entries.get(target)
        if found is None or found[0] != "f":
            raise UnsafePathError(f"hard link {path!r} to {target!r}, which is not a file of this tree")
        os.link(native(self.root, target), self._claim(path))
        self._entries[path] = ["h", path, target]

    def adopt(self, path: str, source: Path, entry: Entry) -> None:
        """Add a file or link of another object's tree.  A hard link saves the copy, and the hash is known."""
        if entry[0] == "l":
            self.symlink(path, str(entry[2]))
            return
        name = native(source, str(entry[1]))
        claimed = self._claim(path)
        try:
            os.link(name, claimed, follow_symlinks=False)
        except OSError:
            # The source is on another file system, or the file has as many links as its file system allows.
            import shutil

            shutil.copyfile(name, claimed)
            os.chmod(claimed, 0o555 if int(entry[2]) & 0o111 else 0o444)
        self._entries[path] = ["f", path, *entry[2:5]]

    def remove(self, path: str) -> None:
        """Remove a file or link (not a directory) again."""
        os.unlink(native(self.root, path))
        del self._entries[path]

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory again."""
        os.rmdir(native(self.root, path))
        del self._entries[path]

    def finish(self) -> list[Value]:
        """Make the directories read-only and return the sorted spec."""
        # Only now: nothing could be written into a read-only directory.
        for path, entry in self._entries.items():
            if entry[0] == "d":
                os.chmod(native(self.root, path), 0o555)
        self.root.chmod(0o555)
        return [list(self._entries[p]) for p in sorted(self._entries)]


def differences(root: Path, spec: Iterable[Entry]) -> Iterator[str]:
    """How the tree on disk differs from its spec, one text for each difference."""
    expected = {str(e[1]): e for e in spec}
    for path in sorted(expected):
        problem = _difference(root, expected[path])
        if problem:
            yield f"{path}: {problem}"
    # A file too many counts as damage too: Python would import it.
    for found in walk(root):
        if found not in expected:
            yield f"{found}: not part of the object"


def _difference(root: Path, entry: Entry) -> str | None:
    name = native(root, str(entry[1]))
    try:
        st = os.lstat(name)
    except FileNotFoundError:
        return "missing"
    kind = entry[0]
    if kind == "d":
        return None if stat.S_ISDIR(st.st_mode) else "not a directory"
    if kind == "l":
        if not stat.S_ISLNK(st.st_mode):
            return "not a symbolic link"
        target = os.readlink(name).decode("utf-8", "surrogateescape")
        return None if target == entry[2] else f"points to {target!r}, not {entry[2]!r}"
    if not stat.S_ISREG(st.st_mode):
        return "not a regular file"
    if kind == "h":
        return None if os.path.samefile(name, native(root, str(entry[2]))) else f"not a hard link to {entry[2]}"
    # The other mode bits are only in the spec: on disk every file is 0555 or 0444.
    if bool(st.st_mode & 0o111) != bool(int(entry[2]) & 0o111):
        return "executable bit differs"
    with open(name, "rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    return None if found == entry[4] else f"sha256 is {found}, not {entry[4]}"


def walk(root: Path) -> Iterator[str]:
    """Every path below ``root``; a directory comes before its content."""
    pending = [""]
    while pending:
        here = pending.pop()
        with os.scandir(native(root, here) if here else os.fsencode(root)) as found:
            for item in sorted(found, key=lambda e: e.name):
                path = (here + "/" if here else "") + item.name.decode("utf-8", "surrogateescape")
                yield path
                if item.is_dir(follow_symlinks=False):
                    pending.append(path)


def remove_tree(root: Path) -> None:
    """Remove a tree, if it exists.  shutil.rmtree cannot: the directories are read-only."""
    if not os.path.lexists(root):
        return
    if root.is_symlink() or not root.is_dir():
        root.unlink()
        return
    _remove(os.fsencode(root))


def _remove(name: bytes) -> None:
    # Removing an entry needs the right to write to its directory.
    os.chmod(name, 0o700)
    with os.scandir(name) as found:
        items = list(found)
    for item in items:
        if item.is_dir(follow_symlinks=False):
            _remove(item.path)
        else:
            os.unlink(item.path)
    os.rmdir(name)
