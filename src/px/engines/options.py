"""The options of ``px run --sandbox`` that engines understand: from text to :mod:`px.warm.spec`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from px.engines.network.modes import Wanted
from px.errors import PxError
from px.warm.places import below
from px.warm.spec import Limits, Mount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from px.engines.gpu.asked import Asked

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Over these the sandbox puts its own; a volume there would take the isolation apart.
_RESERVED = ("/", "/proc", "/dev", "/sys")
LEAST_MEMORY = 4 << 20


@dataclass(frozen=True)
class RunOptions:
    """What the flags of the command ask for; without flags, the defaults."""

    engine: str | None = None
    volumes: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    network: Wanted = field(default_factory=Wanted)
    read_only: bool | None = None
    """Whether the project cannot be written to; None is what the manifest says."""
    git_write: bool = False
    limits: Limits = field(default_factory=Limits)
    memory: str | None = None
    """The limit of memory as the user wrote it."""
    cache: bool = True
    """Whether the run has the project's cache, which outlives it."""
    gpu: Asked | None = None
    """GPUs; None is what the manifest says."""
    auto_add: bool = False
    """Whether px may add a capability that an error asks for, and try again."""


def _bad(option: str, value: str, problem: str, example: str) -> PxError:
    return PxError("PX040", option=option, value=value, problem=problem, example=example)


def parse_volume(text: str, directory: Path) -> Mount:
    """``SRC:DST[:ro|rw]``; a relative SRC starts at ``directory``."""
    source, target, mode = _split_volume(text)
    path = (directory / Path(source).expanduser()).absolute()
    plain = Path(os.path.normpath(path))
    if plain.exists() and path.exists() and plain.samefile(path):
        path = plain  # or check_volumes takes ../data for something in the project, which leads out of it
    if not path.exists():
        raise _bad("--volume", text, f"{path} does not exist", "--volume ./data:/data:ro")
    if not target.startswith("/"):
        raise _bad("--volume", text, "the path in the sandbox must be absolute", "--volume ./data:/data:ro")
    target = os.path.normpath(target)
    if target in _RESERVED or target.startswith(("/proc/", "/dev/", "/sys/")):
        raise _bad("--volume", text, f"{target} belongs to the sandbox itself", "--volume ./data:/data:ro")
    return Mount(path, target, read_only=mode == "ro")


def check_volumes(volumes: Sequence[Mount], root: str, home: str) -> None:
    """Refuse px's own directory, and what a link in the project leads out to: an earlier target may have made it."""
    root, home = os.path.realpath(root), os.path.realpath(home)
    for volume in volumes:
        real = os.path.realpath(volume.source)
        text = f"{volume.source}:{volume.target}"
        if below(real, home) is not None:
            raise _bad("--volume", text, f"{home} is px's own directory", "--volume ./data:/data:ro")
        # Links on the way to the project are the user's own.
        if below(real, root) is None and any(os.path.realpath(above) == root for above in Path(volume.source).parents):
            problem = f"a link in the project leads to {real}, and an earlier target may have made it"
            raise _bad("--volume", text, problem, f"--volume {real}:{volume.target}")


def _split_volume(text: str) -> tuple[str, str, str]:
    # From the right: the host's path may contain colons, the sandbox's may not.
    body, mode = text, "rw"
    head, _, last = text.rpartition(":")
    if last in ("ro", "rw"):
        body, mode = head, last
    elif head.rpartition(":")[0] and not last.startswith("/"):
        raise _bad("--volume", text, f"{last!r} is not a mode: ro and rw are", "--volume ./data:/data:ro")
    source, _, target = body.rpartition(":")
    if not source or not target:
        raise _bad("--volume", text, "it names no place in the sandbox", "--volume ./data:/data:ro")
    return source, target, mode


def parse_env(entries: Sequence[str], host: Mapping[str, str]) -> dict[str, str]:
    """``NAME=VALUE`` sets, ``NAME`` passes the host's value on; a name that the host has not is an error."""
    found = {}
    for entry in entries:
        name, given, value = entry.partition("=")
        if not _NAME.fullmatch(name):
            raise _bad("--env", entry, f"{name!r} is not the name of a variable", "--env DEBUG=1")
        if "\0" in value:
            raise _bad("--env", name, "the value contains a NUL byte", "--env DEBUG=1")
        if given:
            found[name] = value
        elif name in host:
            found[name] = host[name]
        else:
            raise _bad("--env", entry, f"{name} is not set here, so there is nothing to pass on", f"--env {name}=VALUE")
    return found


def parse_memory(text: str) -> int:
    match = _MEMORY.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size < LEAST_MEMORY:
        problem = "it is not a size" if match is None else "the smallest sandbox needs 4m"
        raise _bad("--memory", text, problem, "--memory 512m")
    return size


def parse_cpus(text: str) -> float:
    try:
        cpus = float(text)
    except ValueError:
        cpus = 0.0
    if not 0.01 <= cpus <= 4096:
        raise _bad("--cpus", text, "it is not a number of processors (0.01 and up)", "--cpus 1.5")
    return cpus


def parse_pids(text: str) -> int:
    # Two: px's own first process and the target.
    if not re.fullmatch(r"\d{1,7}", text.strip()) or int(text) < 2:
        raise _bad("--pids", text, "it is not a number of processes (2 and up)", "--pids 100")
    return int(text)


def parse_limits(*, memory: str | None = None, cpus: str | None = None, pids: str | None = None) -> Limits:
    return Limits(
        memory=None if memory is None else parse_memory(memory),
        cpus=None if cpus is None else parse_cpus(cpus),
        pids=None if pids is None else parse_pids(pids),
    )


def extra_ca(host: Mapping[str, str]) -> Path | None:
    """``PX_EXTRA_CA``: a file of PEM certificates that this network's proxy or servers need."""
    configured = host.get("PX_EXTRA_CA")
    if not configured:
        return None
    path = Path(configured).expanduser().absolute()
    try:
        content = path.read_bytes()
    except OSError as e:
        raise _bad("PX_EXTRA_CA", configured, e.strerror or str(e), "PX_EXTRA_CA=/etc/ssl/certs/proxy.pem") from e
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise _bad("PX_EXTRA_CA", configured, "it holds no PEM certificate", "PX_EXTRA_CA=/etc/ssl/certs/proxy.pem")
    return path
