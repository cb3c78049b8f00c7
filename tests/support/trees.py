"""Small trees with a spec, written from a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from px.store.tree import TreeWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from px.store.objects import Draft, Payload, Store
    from px.store.tree import Entry


def write_tree(root: Path, content: Mapping[str, bytes | str]) -> list[Entry]:
    """Bytes become a file, text the target of a symbolic link."""
    writer = TreeWriter(root)
    _fill(writer, content)
    return cast("list[Entry]", writer.finish())


def put_pkg_build(store: Store, name: str, content: Mapping[str, bytes | str]) -> str:
    """A pkg-build with this content in the store."""

    def make(draft: Draft) -> Payload:
        writer = draft.tree()
        _fill(writer, content)
        return {"name": name, "version": "1.0", "source": name, "tags": [], "tree": writer.finish()}

    return store.ensure("pkg-build", f"test-{name}", make)


def _fill(writer: TreeWriter, content: Mapping[str, bytes | str]) -> None:
    for path, value in content.items():
        if isinstance(value, str):
            writer.symlink(path, value)
        else:
            writer.file(path, value, 0o755)
