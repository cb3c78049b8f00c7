"""Editing ``[tool.px.sandbox]`` in place: comments, order and layout stay as the user has them."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, cast

from packaging.utils import canonicalize_name

from px import bounds
from px.errors import PxError
from px.sandbox.manifest import TABLE, read_manifest
from px.sandbox.needs.capabilities import find
from px.store.files import disk_errors, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence
    from pathlib import Path

    from tomlkit import TOMLDocument

PATH = (*TABLE, "capabilities")


def set_capabilities(path: Path, names: Sequence[str], *, enabled: bool) -> tuple[str, ...]:
    """Write ``NAME = true`` (or false) for each name and return those that were not so before."""
    manifest = read_manifest(path)
    wanted = sorted({find(name, manifest.base).name for name in names})
    already = manifest.enabled if enabled else manifest.disabled
    changed = tuple(name for name in wanted if name not in already)

    def apply(table: MutableMapping[str, Any]) -> None:
        for name in changed:
            table[_written(table, name)] = enabled

    if changed:
        _edit(path, apply)
    return changed


def unset_capabilities(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Delete the entries of each name, whatever they say, and return those that were there."""
    manifest = read_manifest(path)
    wanted = sorted({find(name, manifest.base).name for name in names})
    changed = tuple(name for name in wanted if name in manifest.enabled | manifest.disabled)

    def apply(table: MutableMapping[str, Any]) -> None:
        for name in changed:
            del table[_written(table, name)]

    if changed:
        _edit(path, apply)
        _drop_empty(path)
    return changed


def set_pins(path: Path, name: str) -> None:
    """Write ``pins = NAME`` into ``[tool.px.sandbox]``."""
    _edit(path, lambda table: table.update(pins=name), TABLE)


def _drop_empty(path: Path) -> None:
    """Take out the tables that are empty now: nobody would know why they are there.  A comment keeps one."""
    import tomlkit

    target = path.resolve()
    text = target.read_bytes().decode("utf-8")
    document, expected = tomlkit.parse(text), bounds.parse_toml(text)
    for depth in range(len(PATH), 0, -1):
        above, plain = cast("MutableMapping[str, Any]", document), expected
        for key in PATH[: depth - 1]:
            above, plain = cast("MutableMapping[str, Any]", above[key]), plain[key]
        # A table that is written in several places has no text of its own; then it stays.
        text_of = getattr(above[PATH[depth - 1]], "as_string", lambda: "#")
        if plain[PATH[depth - 1]] or "#" in text_of():
            break
        del above[PATH[depth - 1]]
        del plain[PATH[depth - 1]]
    written = re.sub(r"(\r?\n)\s*\Z", r"\1", tomlkit.dumps(document))  # and the empty line above the table
    if tomlkit.dumps(document) != text and bounds.parse_toml(written) == expected:
        with disk_errors(target):
            write_atomically(target, written.encode("utf-8"), mode=target.stat().st_mode & 0o777)


def _written(table: MutableMapping[str, Any], name: str) -> str:
    """The key as the file spells it, which need not be the normalised name."""
    return next((key for key in table if canonicalize_name(key) == name), name)


def _edit(path: Path, apply: Callable[[MutableMapping[str, Any]], None], keys: tuple[str, ...] = PATH) -> None:
    """Change the table at ``keys``."""
    import tomlkit

    target = path.resolve()  # a link stays a link: its target is what changes
    text = target.read_bytes().decode("utf-8")  # bytes, so that CRLF line ends survive
    document = tomlkit.parse(text)
    apply(_table(document, keys))
    written = tomlkit.dumps(document)
    _confirm(path, text, written, apply, keys)
    with disk_errors(target):
        write_atomically(target, written.encode("utf-8"), mode=target.stat().st_mode & 0o777)


def _table(document: TOMLDocument, keys: tuple[str, ...]) -> MutableMapping[str, Any]:
    import tomlkit

    here = cast("MutableMapping[str, Any]", document)
    for depth, key in enumerate(keys, 1):
        if key not in here:
            # Only the last table gets a header of its own: [tool.px.sandbox.capabilities] says all of them.
            here[key] = tomlkit.table(is_super_table=depth < len(keys))
        here = cast("MutableMapping[str, Any]", here[key])
    return here


def _confirm(
    path: Path, before: str, after: str, apply: Callable[[MutableMapping[str, Any]], None], keys: tuple[str, ...]
) -> None:
    """Read the new text back: it must say what the old one said, with this change and no other."""
    expected = copy.deepcopy(bounds.parse_toml(before))
    here: dict[str, Any] = expected
    for key in keys:
        here = here.setdefault(key, {})
    apply(here)
    try:
        same = bounds.parse_toml(after) == expected
    except ValueError:
        same = False
    if not same:
        raise PxError(
            "PX003",
            path=path,
            problem=f"px cannot edit this layout of [{'.'.join(keys)}] without changing something else.",
            fix=["Edit the table by hand; nothing was written."],
        )
