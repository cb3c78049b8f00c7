"""Finds the GPUs of this machine and the driver's files: by a CDI specification, or else by what is there.

GPUs are counted in the order of their places on the bus, as nvidia-smi counts them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.engines.gpu import driver
from px.engines.gpu.cdi import Specification, read_specification
from px.errors import PxError
from px.process import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from px.engines.gpu.driver import DriverFile

_ROOT = Path("/")
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_CACHED = re.compile(r"\s*(\S+) \(libc6[^)]*\) => (/\S.*)")
_MIG = re.compile(r"[0-9]{1,3}:[0-9]{1,3}")
_MODPROBE = "Let the driver make its device nodes: sudo nvidia-modprobe -c 0 -u"
_LONGEST_INFORMATION = 1 << 14


@dataclass(frozen=True)
class Gpu:
    """One GPU, or a part of one (MIG)."""

    names: tuple[str, ...]
    """What it can be asked for by: its number, and its UUID if that is known."""
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Driver:
    """Everything of this machine that a sandbox with GPUs sees."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[str, ...]
    files: tuple[DriverFile, ...]
    source: str
    """Where px knows it from."""

    @property
    def version(self) -> str:
        """By the name of libcuda's file, which ends with it."""
        found = [f.source for f in self.files if "libcuda.so" in f.names]
        return found[0].partition(".so.")[2] if found else ""


def find_driver(root: Path = _ROOT) -> Driver:
    """The driver of this machine; PX925, PX927 or PX929 if there is none that a sandbox could use."""
    specification = read_specification(root)
    if specification is None:
        gpus, nodes, paths, source = _own_gpus(root), _own_nodes(root), list(_own_files(root)), "this machine's files"
    else:
        gpus, nodes = _described(specification), list(specification.nodes)
        paths, source = list(specification.files), str(specification.path)
    if not gpus:
        raise _no_gpu(root, specification)
    return Driver(gpus, _usable(gpus, nodes), tuple(_taken(paths)), source)


def _usable(gpus: Iterable[Gpu], nodes: list[str]) -> tuple[str, ...]:
    for node in [*nodes, *(node for gpu in gpus for node in gpu.nodes)]:
        if not driver.is_device(node):
            raise PxError("PX929", problem=f"{node} is not a device", fix=[_MODPROBE])
        if not os.access(node, os.R_OK | os.W_OK):
            raise PxError("PX929", problem=f"this user may not open {node}", fix=["See who may: ls -l /dev/nvidia*"])
    return tuple(nodes)


def _taken(paths: Iterable[str]) -> Iterator[DriverFile]:
    taken: dict[str, DriverFile] = {}
    for path in paths:
        found = driver.take(path)
        if isinstance(found, str):
            console.detail(f"GPU: px leaves out {path}: {found}")
        else:
            taken.setdefault(found.source, found)
    required = driver.table()["required"]
    if not any(required in file.names for file in taken.values()):
        raise PxError("PX929", problem=f"its library {required} was not found", fix=["See: ldconfig -p | grep cuda"])
    return iter(taken.values())


# --- by a CDI specification ------------------------------------------------------------------------------------


def _described(specification: Specification) -> tuple[Gpu, ...]:
    """The devices, each once: a specification has them by number, by UUID, and all together."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, nodes in specification.devices.items():
        if nodes and (name.isdigit() or _MIG.fullmatch(name) or name.startswith(("GPU-", "MIG-"))):
            names.setdefault(nodes, []).append(name)
    found = [Gpu(tuple(sorted(them, key=_place)), nodes) for nodes, them in names.items()]
    return tuple(sorted(found, key=lambda gpu: _place(gpu.names[0])))


def _place(name: str) -> tuple[int, int, str]:
    """Numbers first, in their order."""
    first, _, second = name.partition(":")
    return (int(first), int(second or 0), name) if first.isdigit() else (1 << 20, 0, name)


# --- by what is there ------------------------------------------------------------------------------------------


def _own_gpus(root: Path) -> tuple[Gpu, ...]:
    try:
        names = [f"/dev/{name}" for name in os.listdir(root / "dev")]
    except OSError:
        names = []
    nodes = [name for name in names if re.fullmatch(r"/dev/nvidia[0-9]{1,3}", name)]
    known = _known(root)
    order = list(known)
    # Those of which the kernel says nothing, as in some containers, come last, by their numbers.
    nodes.sort(key=lambda node: (order.index(node) if node in known else len(order), int(node[len("/dev/nvidia") :])))
    return tuple(
        Gpu((str(number), *([known[node]] if known.get(node) else [])), (_at(root, node),))
        for number, node in enumerate(nodes)
    )


def _known(root: Path) -> dict[str, str]:
    """The node of each GPU -> its UUID, in the order of their places on the bus."""
    found: dict[str, str] = {}
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))[:64]:
        try:
            with path.open("rb") as f:
                said = f.read(_LONGEST_INFORMATION).decode("ascii", "replace")
        except OSError:
            continue
        lines = (line.partition(":") for line in said.splitlines())
        rows = {name.strip(): value.strip() for name, _, value in lines}
        if rows.get("Device Minor", "").isdigit():
            uuid = rows.get("GPU UUID", "")
            found[f"/dev/nvidia{rows['Device Minor']}"] = uuid if re.fullmatch(r"GPU-[0-9a-f-]{36}", uuid) else ""
    return found


def _own_nodes(root: Path) -> list[str]:
    rows = driver.table()
    needed = [_at(root, node) for node in rows["nodes"]]
    return needed + [place for node in rows["optional_nodes"] if driver.is_device(place := _at(root, node))]


def _at(root: Path, path: str) -> str:
    return os.fspath(root / path.lstrip("/"))


def _own_files(root: Path) -> Iterator[str]:
    libraries = _of_ldconfig() if root == _ROOT else []
    required = driver.table()["required"]
    if not any(os.path.basename(path) == required for path in libraries):
        libraries += _of_directories(root)
    yield from libraries
    places = [_at(root, f"{d}/{name}") for name in driver.table()["programs"] for d in driver.table()["program_places"]]
    yield from filter(os.path.exists, places)


def _of_ldconfig() -> list[str]:
    program = next((path for path in _LDCONFIG if os.access(path, os.X_OK)), None)
    if program is None:
        return []
    rows = map(_CACHED.fullmatch, run([program, "-p"], env={"LC_ALL": "C"}).stdout.splitlines())
    return [row[2] for row in rows if row is not None and driver.is_library(row[1])]


def _of_directories(root: Path) -> list[str]:
    found = []
    for template in driver.table()["directories"]:
        directory = _at(root, template.format(triplet=f"{os.uname().machine}-linux-gnu"))
        try:
            names = sorted(filter(driver.is_library, os.listdir(directory)))
        except OSError:
            continue
        found += [os.path.join(directory, name) for name in names]
        if driver.table()["required"] in names:
            break  # the libraries of one driver lie together
    return found


def _no_gpu(root: Path, specification: Specification | None) -> PxError:
    if specification is not None:
        return PxError("PX927", path=specification.path, problem="it has no GPU with device nodes")
    if (root / "proc/driver/nvidia/version").exists():
        return PxError("PX929", problem="it is loaded, but there is no /dev/nvidia0", fix=[_MODPROBE])
    return PxError("PX925", problem="there is no /dev/nvidia0, and no CDI specification names another")
