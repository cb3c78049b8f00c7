"""Which files and device nodes may be the driver's own (``data/gpu.toml``); nothing else gets into a sandbox.

Names alone are not enough: a link of the right name could lead anywhere.  So what counts is the file at its end, and a
library must be one for this machine.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from px import DATA
from px.elf import read_elf

_LIBRARY = re.compile(r"(lib[a-z0-9-]+)\.so(?:\.[0-9]+){0,4}")
_OF_ONE_GPU = re.compile(r"/dev/nvidia([0-9]{1,3})|/dev/nvidia-caps/nvidia-cap[0-9]{1,6}")


@cache
def table() -> dict[str, Any]:
    with open(f"{DATA}/gpu.toml", "rb") as f:
        return tomllib.load(f)


def is_library(name: str) -> bool:
    """Whether a library of this name comes with the driver."""
    match = _LIBRARY.fullmatch(name)
    return match is not None and match[1] in table()["libraries"]


def is_gpu_node(path: str) -> bool:
    """Whether this is a node of one GPU, or of a part of one."""
    return _OF_ONE_GPU.fullmatch(path) is not None


def is_shared_node(path: str) -> bool:
    """Whether this is a node that all GPUs need."""
    return path in table()["nodes"] or path in table()["optional_nodes"]


def is_device(path: str) -> bool:
    """Whether there is a device, and no link to one."""
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:
        return False


@dataclass(frozen=True)
class DriverFile:
    """A library or program of the driver: where it is, and by which names programs look for it."""

    source: str
    names: tuple[str, ...]
    program: bool = False


def take(path: str) -> DriverFile | str:
    """The file, if it may be the driver's; else why not."""
    real = os.path.realpath(path)
    name = os.path.basename(real)
    program = os.path.basename(path) in table()["programs"]
    if os.path.basename(path) != name if program else not is_library(name):
        return f"{real} is no file of a driver" if real != path else "it is no file of a driver"
    try:
        found = os.stat(real)
        elf = read_elf(real) if stat.S_ISREG(found.st_mode) else None
    except (OSError, ValueError) as e:  # ValueError: mmap of an empty file
        return str(e)
    if elf is None or (elf.machine, elf.bits) != (os.uname().machine, 64):
        return "it is not for this machine"
    if found.st_mode & stat.S_IWOTH:
        return "everybody can write to it"
    return DriverFile(real, (name,) if program else _names(name, elf.soname), program)


def _names(name: str, soname: str | None) -> tuple[str, ...]:
    """The file's own name, the one that others link to, and for libcuda also the one that some programs open."""
    linked = [soname] if soname is not None and is_library(soname) else []
    bare = ["libcuda.so"] if name.startswith("libcuda.so.") else []
    return tuple(dict.fromkeys([name, *linked, *bare]))
