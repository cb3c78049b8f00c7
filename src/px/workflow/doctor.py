"""What this machine can do for px: each check says what it found and, where that is not enough, the fix."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px import console, process
from px.engines import NAMES, engine
from px.engines.gpu.asked import Asked, choose
from px.engines.gpu.find import find_driver
from px.errors import PxError
from px.project.discovery import try_discover
from px.project.uv import find_uv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.home import Home

OK, WARN, FAIL = "ok", "warn", "fail"
_LITTLE_SPACE = 2 * 10**9
_UNDER_ENGINES = ("user namespaces", "overlayfs")
# A system call with the same number on every machine, and the version that can close abstract sockets.
_LANDLOCK_CREATE_RULESET, LANDLOCK_SCOPES = 444, 6


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    verdict: str
    finding: str
    fix: tuple[str, ...] = ()


def examine(home: Home) -> list[Check]:
    kernel = [_user_namespaces(), _overlay(), _abstract_sockets()]
    return [_python(), _uv(), _home(home), _disk(home), *kernel, *_engines(home), _gpus(), _store(home)]


def first_step(checks: Sequence[Check], directory: Path) -> str:
    """What to do first, in one line: the worst finding's fix, or else the first command of a project."""
    broken = [c for c in checks if c.verdict == FAIL]
    engines = [c for c in checks if c.name.startswith("engine ")]
    if not any(c.verdict == OK for c in engines):
        # Namespaces and overlays come before the engines, and are the reason if bubblewrap does not work.
        broken += [c for c in checks if c.verdict == WARN and c.name in _UNDER_ENGINES] + engines
    for check in broken:
        if check.fix:
            return f"Do this first ({check.name}): {check.fix[0]}"
    if broken:
        return f"See to this first: {broken[0].name}: {broken[0].finding}"
    if try_discover(directory) is None:
        return "px works here. Start a project: px init my-project"
    return "px works here. Build this project's sandbox and look around in it: px run --sandbox python"


def _python() -> Check:
    return Check("python", OK, f"{platform.python_version()} at {sys.executable}")


def _uv() -> Check:
    try:
        found = find_uv()
    except PxError as e:
        return Check("uv", FAIL, e.what, e.fix)
    done = process.run([found, "--version"])
    return Check("uv", OK if done.ok else FAIL, f"{done.stdout.strip()} at {found}")


def _home(home: Home) -> Check:
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        probe = home.root / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as e:
        return Check("px home", FAIL, f"{home.root}: {e.strerror}", ("export PX_HOME=DIR  (a directory that you own)",))
    return Check("px home", OK, f"{home.root}")


def _disk(home: Home) -> Check:
    place = home.root if home.root.exists() else home.root.parent
    free = shutil.disk_usage(place).free
    if free < _LITTLE_SPACE:
        return Check("disk", WARN, f"{console.size(free)} free for {home.root}", ("px store gc --dry-run",))
    return Check("disk", OK, f"{console.size(free)} free for {home.root}")


def _user_namespaces() -> Check:
    """Try it in a child: settings in /proc do not tell the whole story."""
    if sys.platform != "linux":
        return Check(
            "user namespaces",
            WARN,
            f"{sys.platform} has none",
            ("use the docker engine: px run --sandbox --engine docker",),
        )
    code = "import ctypes,sys; sys.exit(ctypes.CDLL(None, use_errno=True).unshare(0x10000000) and ctypes.get_errno())"
    done = process.run([sys.executable, "-I", "-S", "-c", code])
    if done.ok:
        return Check("user namespaces", OK, "can be made")
    return Check("user namespaces", WARN, f"refused: {os.strerror(done.code)}", _namespace_fixes())


def _namespace_fixes() -> tuple[str, ...]:
    switches = {
        "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0  (or an AppArmor profile for bwrap)",
        ),
        "/proc/sys/user/max_user_namespaces": ("0", "sudo sysctl -w user.max_user_namespaces=15000"),
    }
    found = []
    for path, (bad, fix) in switches.items():
        try:
            if Path(path).read_text().strip() == bad:
                found.append(fix)
        except OSError:
            continue
    return (*found, "or use another engine: px run --sandbox --engine docker")


def _overlay() -> Check:
    if sys.platform != "linux":
        return Check(
            "overlayfs", WARN, f"{sys.platform} has none", ("use the docker engine: px run --sandbox --engine docker",)
        )
    known = Path("/proc/filesystems").read_text()
    if "\toverlay" in known:
        return Check("overlayfs", OK, "the kernel has it")
    return Check("overlayfs", WARN, "the kernel does not list it", ("sudo modprobe overlay",))


def _abstract_sockets() -> Check:
    """Whether px-init can close the host's abstract sockets to a sandbox that shares the host's network."""
    version = landlock()
    if version >= LANDLOCK_SCOPES:
        return Check("abstract sockets", OK, f"closed to sandboxes in every network mode (Landlock {version})")
    found = f"has Landlock {version}" if version > 0 else "has no Landlock"
    finding = f"open to sandboxes with the host's network: Linux 6.12 and newer can close them, this kernel {found}"
    return Check("abstract sockets", WARN, finding, ("px run --sandbox --network allow --allow-net HOST …",))


def landlock() -> int:
    """The version of the kernel's Landlock; 0 if it has none, or has it turned off."""
    if sys.platform != "linux":
        return 0
    import ctypes

    return max(0, int(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)))


def _engines(home: Home) -> list[Check]:
    """The sandbox engines, as they see themselves."""
    found = []
    for name in NAMES:
        problem = engine(name, home).problem()
        verdict, finding, fix = (OK, "works", ()) if problem is None else (WARN, problem.reason, problem.fix)
        found.append(Check(f"engine {name}", verdict, finding, tuple(fix)))
    return found


def _gpus() -> Check:
    """What ``--gpu`` would find; a machine without a GPU is as good as any other."""
    try:
        found = find_driver()
        seen = len(choose(found.gpus, Asked(), os.environ)[0])
    except PxError as e:
        return Check("gpu", *((OK, e.what, ()) if e.code == "PX925" else (WARN, e.what, e.fix)))
    count = f"{seen} of {len(found.gpus)}" if seen != len(found.gpus) else str(seen)
    return Check("gpu", OK, f"{count} NVIDIA (driver {found.version or 'unknown'}), by {found.source}")


def _store(home: Home) -> Check:
    if not home.objects.is_dir():
        return Check("store", OK, "empty")
    kinds = {kind.name: sum(1 for _ in kind.iterdir()) for kind in sorted(home.objects.iterdir())}
    bad = [p for kind in home.objects.iterdir() for p in kind.iterdir() if not (p / "payload.json").is_file()]
    said = ", ".join(console.counted(n, kind) for kind, n in kinds.items() if n) or "empty"
    if bad:
        return Check("store", FAIL, f"{said}; {len(bad)} incomplete", ("px store verify",))
    return Check("store", OK, said)
