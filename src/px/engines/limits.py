"""Memory, processors and processes of a sandbox, bounded by control groups.

Three ways, tried in this order: ask systemd for a scope (the polite way where it manages the groups, and the only
one for ordinary users); make groups directly, in version 2's single tree; make them in version 1's trees.  Where none
works px refuses, because ``ulimit`` would bound something else (each process, or each user) under the same name.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.warm.places import program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.warm.spec import Limits

V2 = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds, the kernel's own default
CONTROLLERS = ("memory", "cpu", "pids")
_counter = count()


# A shell joins the groups and then becomes bubblewrap, so that everything from there on is counted.
_JOIN = """
count=$1; shift
while [ "$count" -gt 0 ]; do
    echo 0 >"$1/cgroup.procs" || exit 125
    shift; count=$((count - 1))
done
exec "$@"
"""


@dataclass
class Group:
    """Where the sandbox's processes will be counted."""

    scope: tuple[str, ...] = ()
    """The command that asks systemd, where that is the way."""
    directories: list[Path] = field(default_factory=list)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What comes before bubblewrap's own command."""
        if not self.directories:
            return self.scope
        return ("/bin/sh", "-c", _JOIN, "px-limits", str(len(self.directories)), *map(str, self.directories))

    def close(self) -> None:
        for directory in self.directories:
            _remove(directory)


@contextmanager
def bounded(limits: Limits) -> Iterator[tuple[str, ...]]:
    """The command that comes before bubblewrap's own, for as long as the sandbox runs; empty without bounds."""
    made = group(limits)
    try:
        yield made.prefix
    finally:
        made.close()


def wanted(limits: Limits) -> tuple[str, ...]:
    values = (limits.memory, limits.cpus, limits.pids)
    return tuple(name for name, value in zip(CONTROLLERS, values, strict=True) if value is not None)


def group(limits: Limits) -> Group:
    if not limits:
        return Group()
    prefix = systemd_scope(limits)
    if prefix is not None:
        return Group(scope=prefix)
    made = Group()
    try:
        for directory, settings in _places(limits):
            _sweep(directory.parent)
            directory.mkdir()
            made.directories.append(directory)
            for name, value in settings:
                (directory / name).write_text(value)
    except OSError as e:
        made.close()
        raise _refusal(limits, f"{e.filename or 'the control groups'}: {e.strerror}") from e
    return made


def _refusal(limits: Limits, reason: str) -> PxError:
    options = ", ".join(f"--{name if name != 'cpu' else 'cpus'}" for name in wanted(limits))
    return PxError("PX907", options=options, reason=reason)


# --- systemd ---------------------------------------------------------------------------------------------------


def systemd_scope(limits: Limits) -> tuple[str, ...] | None:
    if not Path("/run/systemd/system").is_dir() or not _on_path("systemd-run"):
        return None
    if os.geteuid() == 0:
        return _scope_command((), limits)
    if not _delegated(limits):
        return None
    return _scope_command(("--user",), limits)


def _delegated(limits: Limits) -> bool:
    """Whether the user's own manager runs and may divide what is asked for."""
    uid = os.geteuid()
    if not Path(f"/run/user/{uid}/systemd/private").exists():
        return False
    manager = V2 / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service" / "cgroup.controllers"
    try:
        return set(wanted(limits)) <= set(manager.read_text().split())
    except OSError:
        return False


def _scope_command(manager: Sequence[str], limits: Limits) -> tuple[str, ...]:
    properties: list[str] = []
    if limits.memory is not None:
        properties += ["-p", f"MemoryMax={limits.memory}", "-p", "MemorySwapMax=0"]
    if limits.cpus is not None:
        properties += ["-p", f"CPUQuota={max(1, round(limits.cpus * 100))}%"]
    if limits.pids is not None:
        properties += ["-p", f"TasksMax={limits.pids + 1}"]
    return (_on_path("systemd-run"), *manager, "--scope", "--quiet", "--collect", *properties, "--")


def _on_path(name: str) -> str:
    return program(name) or ""


# --- directly --------------------------------------------------------------------------------------------------


def _places(limits: Limits) -> Iterator[tuple[Path, list[tuple[str, str]]]]:
    name = f"px-{os.getpid()}-{next(_counter)}"
    own = own_groups()
    if (V2 / "cgroup.controllers").exists():
        parent = V2 / own.get("", "/").strip("/")
        # Only the root may hold processes beside groups with controllers: elsewhere the new group is a sibling.
        parent = parent if parent == V2 else parent.parent
        enabled = set((parent / "cgroup.subtree_control").read_text().split())
        if missing := [c for c in wanted(limits) if c not in enabled]:
            (parent / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in missing))
        yield parent / name, list(v2_settings(limits))
        return
    for controller in wanted(limits):
        if controller not in own:
            raise FileNotFoundError(2, "the kernel has no such controller", controller)
        yield V2 / controller / own[controller].strip("/") / name, list(v1_settings(limits, controller))


def own_groups() -> dict[str, str]:
    """Controller -> path of the group that this process is in; version 2's is under the empty name."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def v2_settings(limits: Limits) -> Iterator[tuple[str, str]]:
    if limits.memory is not None:
        yield "memory.max", str(limits.memory)
        yield "memory.oom.group", "1"
        if _has_swap():
            yield "memory.swap.max", "0"
    if limits.cpus is not None:
        yield "cpu.max", f"{round(limits.cpus * PERIOD)} {PERIOD}"
    if limits.pids is not None:
        yield "pids.max", str(limits.pids + 1)


def v1_settings(limits: Limits, controller: str) -> Iterator[tuple[str, str]]:
    if controller == "memory":
        yield "memory.limit_in_bytes", str(limits.memory)
        if _has_swap():
            yield "memory.memsw.limit_in_bytes", str(limits.memory)
    elif controller == "cpu" and limits.cpus is not None:
        yield "cpu.cfs_period_us", str(PERIOD)
        yield "cpu.cfs_quota_us", str(max(1000, round(limits.cpus * PERIOD)))
    elif controller == "pids" and limits.pids is not None:
        # One more for bubblewrap's monitor, which is outside the sandbox but in the group.
        yield "pids.max", str(limits.pids + 1)


def _has_swap() -> bool:
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


def _sweep(parent: Path) -> None:
    """Remove the empty groups of px processes that were killed."""
    for stale in parent.glob("px-[0-9]*"):
        if not Path("/proc", stale.name.split("-")[1]).exists():
            _remove(stale)


def _remove(directory: Path) -> None:
    # The last process may still be on its way out.
    for _ in range(50):
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return
