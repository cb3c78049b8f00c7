"""Reads CDI specifications: files in which an administrator, or nvidia-ctk, describes devices to container engines.

px takes device nodes and the driver's own files from them.  Hooks are never run, and variables, other mounts and the
places that they name inside are left out.  What is in the file decides what gets into a sandbox, so only an
administrator may be able to write to it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from px import bounds, console, foreign
from px.engines.gpu import driver, plain_yaml
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DIRECTORIES = ("etc/cdi", "var/run/cdi")
KIND = "nvidia.com/gpu"
_MOST_FILES = 64
_LARGEST = 1 * bounds.MIB
_MOST = 4096  # entries of any one list; eight GPUs, each in seven parts, have 200


@dataclass(frozen=True)
class Specification:
    """What one file says of NVIDIA's GPUs."""

    path: Path
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The name of each device -> its nodes."""
    nodes: tuple[str, ...] = ()
    """The nodes that all of them need."""
    files: tuple[str, ...] = ()


def read_specification(root: Path) -> Specification | None:
    """This machine's specification of NVIDIA's GPUs; that of the later directory, if both have one."""
    found = None
    for directory in DIRECTORIES:
        for path in _files(root / directory):
            found = _read(path) or found
    return found


def _files(directory: Path) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith((".json", ".yaml")))
    except OSError:
        return []
    return [directory / name for name in names[:_MOST_FILES]]


def _read(path: Path) -> Specification | None:
    """None for other devices, whoever's they are and whatever is wrong with their file."""
    try:
        content = foreign.read(path.parent, path.name, _LARGEST)
    except PxError as e:
        raise _bad(path, str(e.fields["problem"])) from None
    if KIND.encode() not in content:
        return None
    _check_writers(path)
    try:
        text = content.decode("utf-8")
        document = bounds.parse_json(text) if path.suffix == ".json" else plain_yaml.parse(text)
        return _specification(path, document)
    except ValueError as e:
        raise _bad(path, str(e)) from None


def _check_writers(path: Path) -> None:
    for place in (path.parent, path):
        found = os.stat(place)
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _bad(path, f"others than root and you can write to {place}", f"Run: sudo chmod go-w {place}")


def _bad(path: Path, problem: str, *fix: str) -> PxError:
    return PxError("PX927", path=path, problem=problem, fix=fix)


def _specification(path: Path, document: Any) -> Specification | None:
    table = _table(document, "the document")
    if table.get("kind") != KIND:
        return None
    shared = _edits(table)
    devices: dict[str, tuple[str, ...]] = {}
    files = list(_mounts(shared))
    for entry in _list(table.get("devices"), "devices"):
        device = _table(entry, "a device")
        edits = _edits(device)
        devices[_text(device.get("name"), "the name of a device")] = tuple(_nodes(edits, driver.is_gpu_node))
        files += _mounts(edits)
    return Specification(path, devices, tuple(_nodes(shared, driver.is_shared_node)), tuple(dict.fromkeys(files)))


def _edits(table: dict[str, Any]) -> dict[str, Any]:
    found = table.get("containerEdits")
    return {} if found is None else _table(found, "containerEdits")


def _nodes(edits: dict[str, Any], wanted: Callable[[str], bool]) -> Iterator[str]:
    for entry in _list(edits.get("deviceNodes"), "deviceNodes"):
        node = _table(entry, "a device node")
        path = _text(node.get("path"), "the path of a device node")
        if _text(node.get("hostPath") or path, "hostPath") == path and wanted(path):
            yield path
        else:
            console.detail(f"CDI: px leaves out the device node {path}")


def _mounts(edits: dict[str, Any]) -> Iterator[str]:
    for entry in _list(edits.get("mounts"), "mounts"):
        path = _text(_table(entry, "a mount").get("hostPath"), "hostPath")
        if not os.path.isabs(path) or ".." in path.split("/"):
            raise ValueError(f"hostPath {path!r} is not an absolute path without ..")
        yield path


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a table")  # noqa: TRY004 - wrong content, whatever its type
    return value


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST:
        raise ValueError(f"{name} is not a list, or has more than {_MOST} entries")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value or len(value) > bounds.PATH:
        raise ValueError(f"{name} is not a text")
    return value
