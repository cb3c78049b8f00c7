"""Gives GPUs to a run: to bubblewrap as device nodes and files, to docker and podman in their own way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px.engines.gpu.asked import ALL, check_count, choose, named
from px.engines.gpu.find import find_driver
from px.warm.spec import Mount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.engines.gpu.asked import Asked
    from px.engines.gpu.find import Driver
    from px.warm.spec import RunSpec

# In a directory of the sandbox's own, so that no place in the image is covered.
LIBRARIES = "/run/px-gpu/lib"
PROGRAMS = "/run/px-gpu/bin"


def driver_program(name: str, engine: str) -> str | None:
    """Where a program of the driver lies in a sandbox with GPUs, or None if this machine's driver has not got it."""
    if engine != "bubblewrap":
        return name
    return f"{PROGRAMS}/{name}" if any(file.program and name in file.names for file in find_driver().files) else None


def add_gpus(spec: RunSpec, asked: Asked, host: Mapping[str, str]) -> RunSpec:
    """``spec`` with the GPUs that are asked for; an error if this machine has not so many."""
    driver = find_driver()
    gpus, order = choose(driver.gpus, asked, host)
    # One file of a name for each: parts of one GPU share its node.
    nodes = dict.fromkeys([*driver.nodes, *(node for gpu in gpus for node in gpu.nodes)])
    return spec.replace(
        devices=(*spec.devices, *nodes),
        # First, so that a volume can cover them and never gets a file of theirs.
        mounts=(*mounts(driver), *spec.mounts),
        env={**order, **spec.env, **_paths(spec.env)},
    )


def mounts(driver: Driver) -> tuple[Mount, ...]:
    """Every file by each of its names."""
    places = {
        f"{PROGRAMS if file.program else LIBRARIES}/{name}": file.source for file in driver.files for name in file.names
    }
    return tuple(Mount(source, target, read_only=True) for target, source in places.items())


def _paths(env: Mapping[str, str]) -> dict[str, str]:
    """Where the loader and the shell look: after all that the project itself names."""
    own = {"LD_LIBRARY_PATH": LIBRARIES, "PATH": PROGRAMS}
    return {name: os.pathsep.join(filter(None, (env.get(name), place))) for name, place in own.items()}


def add_names(spec: RunSpec, asked: Asked, host: Mapping[str, str]) -> RunSpec:
    """``spec`` with the names of the GPUs, for an engine that finds them itself."""
    names = named(host)
    if names is None:
        return spec.replace(gpus=(ALL,) if asked.count is None else tuple(map(str, range(asked.count))))
    check_count(len(names), asked, names)
    return spec.replace(gpus=names[: asked.count])
