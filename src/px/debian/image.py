"""A root file system in the making: the tree that is being written, seen on top of the layers below it.

Paths are those of the finished image, without a leading slash.  Symbolic links between directories are
followed inside the image, as the kernel would after a chroot, so merged /usr needs no rewriting of names:
with ``bin -> usr/bin`` in place, ``bin/sh`` is written to ``usr/bin/sh``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.store.tree import Entry, TreeWriter, UnsafePathError, native

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

MAX_LINKS = 40


class Below:
    """One finished layer."""

    def __init__(self, root: Path, spec: Sequence[Entry]):
        self.root = root
        self.entries: Mapping[str, Entry] = {str(e[1]): e for e in spec}


class View:
    """Finished layers on top of each other; later ones hide earlier ones."""

    def __init__(self, layers: Sequence[Below]):
        self.below = tuple(reversed(layers))
        self._directories: dict[str, str] = {}

    def entry(self, path: str) -> Entry | None:
        """What is at ``path`` (already resolved), in the topmost layer that has it."""
        for layer in self.below:
            if path in layer.entries:
                return layer.entries[path]
        return None

    def __contains__(self, path: str) -> bool:
        return self.entry(self.place(path)) is not None

    def place(self, path: str) -> str:
        """``path`` with the links among its directories followed; its last part is left alone."""
        parent, slash, name = path.rpartition("/")
        if not slash:
            return path
        known = self._directories.get(parent)
        if known is None:
            known = self._directories[parent] = self.resolve(parent)
        return f"{known}/{name}" if known else name

    def resolve(self, path: str) -> str:
        """``path`` with every link followed; what does not exist is as it is spelled."""
        done: list[str] = []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            here = "/".join([*done, part])
            found = self.entry(here)
            if found is None or found[0] != "l":
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise UnsafePathError(f"too many links in {path!r}")
            target = str(found[2])
            if target.startswith("/"):
                done = []
            todo += target.split("/")[::-1]
        return "/".join(done)

    def read(self, path: str) -> bytes:
        """The content of a file, links followed; :class:`FileNotFoundError` if the image has none."""
        real = self.resolve(path)
        found = self.entry(real)
        if found is not None and found[0] == "h":
            real = str(found[2])
        for root, entries in self._layers():
            if real in entries:
                with open(native(root, real), "rb") as f:
                    return f.read()
        raise FileNotFoundError(path)

    def _layers(self) -> Iterator[tuple[Path, TreeWriter | Mapping[str, Entry]]]:
        for layer in self.below:
            yield layer.root, layer.entries

    def listing(self, directory: str) -> list[str]:
        """Names of what lies directly in ``directory``, sorted, over all layers."""
        prefix = self.resolve(directory) + "/"
        names = {p[len(prefix) :] for p in self.paths() if p.startswith(prefix)}
        return sorted(name for name in names if "/" not in name)

    def paths(self) -> set[str]:
        """Every path of the image."""
        return {path for layer in self.below for path in layer.entries}


class Image(View):
    """The layer that is being written, seen on top of what it lies on."""

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
        """Write a file, replacing what was there."""
        self.writer.file(self._cleared(path), content, mode)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link, replacing what was there."""
        self.writer.symlink(self._cleared(path), target)

    def directory(self, path: str, mode: int = 0o755) -> None:
        self.writer.directory(self.place(path), mode)

    def _cleared(self, path: str) -> str:
        place = self.place(path)
        found = self.writer.entry(place)
        if found is not None and found[0] != "d":
            self.writer.remove(place)
        return place
