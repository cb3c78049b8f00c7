"""A root file system that is being built: the layer that is being written, on top of finished layers.

Paths are those of the finished image, without a leading slash.  Links are followed inside the image, as the kernel does
after a chroot.  So merged /usr needs no special case: with the link ``bin -> usr/bin``, ``bin/sh`` is written to
``usr/bin/sh``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.store.tree import Entry, TreeWriter, UnsafePathError, native
from px.warm.links import follow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from px.store.canonical import Value


class Below:
    """One finished layer."""

    def __init__(self, root: Path, spec: Sequence[Entry]):
        self.root = root
        self.entries: Mapping[str, Entry] = {str(e[1]): e for e in spec}


class View:
    """A stack of finished layers.  Entries of later layers hide those of earlier ones."""

    def __init__(self, layers: Sequence[Below]):
        self.below = tuple(reversed(layers))
        self._directories: dict[str, str] = {}

    def entry(self, path: str) -> Entry | None:
        """The entry at ``path`` in the topmost layer that has it.  ``path`` must be resolved already."""
        for layer in self.below:
            if path in layer.entries:
                return layer.entries[path]
        return None

    def __contains__(self, path: str) -> bool:
        return self.entry(self.place(path)) is not None

    def place(self, path: str) -> str:
        """``path`` with the links in its directories followed, but not a link in its last part.

        Links and files are created at such a path: a link that is there is replaced, not followed.
        """
        parent, slash, name = path.rpartition("/")
        if not slash:
            return path
        # A package has many files in few directories: remembering where those are saves most of the work.
        known = self._directories.get(parent)
        if known is None:
            known = self._directories[parent] = self.resolve(parent)
        return f"{known}/{name}" if known else name

    def resolve(self, path: str) -> str:
        """``path`` with every link followed.  Parts that do not exist stay as they are."""
        real = follow(path, self._link_at)
        if real is None:
            raise UnsafePathError(f"too many links in {path!r}")
        return real

    def _link_at(self, path: str) -> str | None:
        found = self.entry(path)
        return str(found[2]) if found is not None and found[0] == "l" else None

    def read(self, path: str) -> bytes:
        """The content of a file.  Follows links; raises :class:`FileNotFoundError` if there is no file."""
        real = self.resolve(path)
        found = self.entry(real)
        if found is not None and found[0] == "h":
            real = str(found[2])
        for root, entries in self._layers():
            if real in entries:
                with open(native(root, real), "rb") as f:
                    return f.read()
        raise FileNotFoundError(path)

    # The topmost layer first: its entries hide those below.
    def _layers(self) -> Iterator[tuple[Path, TreeWriter | Mapping[str, Entry]]]:
        for layer in self.below:
            yield layer.root, layer.entries

    def listing(self, directory: str) -> list[str]:
        """The names in ``directory``, of all layers, sorted."""
        prefix = self.resolve(directory) + "/"
        names = {p[len(prefix) :] for p in self.paths() if p.startswith(prefix)}
        return sorted(name for name in names if "/" not in name)

    def paths(self) -> set[str]:
        """Every path in the image."""
        return {path for layer in self.below for path in layer.entries}


class Image(View):
    """The layer that is being written, and the finished layers below it."""

    def __init__(self, writer: TreeWriter, below: Sequence[Below] = ()):
        super().__init__(below)
        self.writer = writer

    def entry(self, path: str) -> Entry | None:
        found = self.writer.entry(path)
        return found if found is not None else super().entry(path)

    def paths(self) -> set[str]:
        return super().paths() | set(self.writer.paths())

    def _layers(self) -> Iterator[tuple[Path, TreeWriter | Mapping[str, Entry]]]:
        yield self.writer.root, self.writer
        yield from super()._layers()

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file.  Replaces what is there, except a directory."""
        self.writer.file(self._cleared(path), content, mode)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link.  Replaces what is there, except a directory."""
        self.writer.symlink(self._cleared(path), target)

    def directory(self, path: str, mode: int = 0o755) -> None:
        self.writer.directory(self.place(path), mode)

    def finish(self) -> list[Value]:
        """Make the tree read-only and return its spec."""
        return self.writer.finish()

    def _cleared(self, path: str) -> str:
        # An entry of a layer below needs no removal: the new one hides it.
        place = self.place(path)
        found = self.writer.entry(place)
        if found is not None and found[0] != "d":
            self.writer.remove(place)
        return place
