"""Does bubblewrap work on this machine, and if not, which of the known reasons is it?

The trial is the real thing, with every namespace and mount that a run uses, over an empty layer and with px-init as
the target; so it needs no image.  Only when it fails are the kernel's settings looked at, to say why.
"""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path

from px.engines.protocol import Problem
from px.warm import arguments, bubblewrap, streams
from px.warm.spec import RunSpec

# px-init without its argument ends with this code: it ran, inside the sandbox.
_INIT_RAN = 125

_APPARMOR = (
    "AppArmor lets only programs with a profile of their own use user namespaces"
    " (kernel.apparmor_restrict_unprivileged_userns = 1, as on Ubuntu 23.10 and later)"
)
_APPARMOR_FIX = (
    "Give it one: printf 'abi <abi/4.0>,\\nprofile px-bwrap {path} flags=(unconfined) {{ userns, }}\\n'"
    " | sudo tee /etc/apparmor.d/px-bwrap && sudo apparmor_parser -r /etc/apparmor.d/px-bwrap"
)
# A file, the value that stands in the way, what that means, and what to do.
_SETTINGS = (
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "this kernel lets only root make user namespaces (kernel.unprivileged_userns_clone = 0)",
        "Allow it: sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "user namespaces are turned off (user.max_user_namespaces = 0)",
        "Turn them on: sudo sysctl -w user.max_user_namespaces=15000",
    ),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", _APPARMOR, _APPARMOR_FIX),
)
_CONTAINER_FIX = (
    "Start the outer container so that it may make namespaces and a /proc of its own: docker run"
    " --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    " --security-opt systempaths=unconfined …"
)
_OTHER_ENGINE = "Or use another engine: px run --sandbox --engine docker …"


def diagnose(path: Path, empty: Path) -> Problem | None:
    """None when a sandbox can be made with the bubblewrap at ``path``; ``empty`` is a directory to try it with."""
    try:
        empty.mkdir(parents=True, exist_ok=True)
    except OSError:
        with tempfile.TemporaryDirectory(prefix="px-trial-") as other:
            said = trial(path, Path(other))
    else:
        said = trial(path, empty)
    return None if said is None else explain(path, said)


def trial(path: Path, layer: Path) -> str | None:
    """Make a sandbox; bubblewrap's complaint when that fails."""
    said: list[bytes] = []
    spec = RunSpec((layer,), (arguments.INIT,), {}, cwd="/", network=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        with streams.Streams(nothing, nothing, said.append) as ends:
            code = bubblewrap.start(str(path), spec, ends)
    finally:
        os.close(nothing)
    text = b"".join(said).decode("utf-8", "replace").strip()
    return None if code == _INIT_RAN else text or "bubblewrap ended without a message"


def explain(path: Path, said: str, settings: Path = Path("/")) -> Problem:
    """Turn bubblewrap's complaint into a reason and a fix."""
    for name, bad, reason, fix in _SETTINGS:
        if _read(settings / name.lstrip("/")) == bad:
            return Problem(f"{reason}; bubblewrap said: {said}", (fix.format(path=path), _OTHER_ENGINE))
    if "overlay" in said and _kernel() < (5, 11):
        reason = f"this kernel ({platform.release()}) lets only root mount overlays; 5.11 or newer is needed"
        return Problem(reason, ("Use a newer kernel.", _OTHER_ENGINE))
    if _in_container():
        return Problem(
            f"px runs inside a container that forbids it; bubblewrap said: {said}", (_CONTAINER_FIX, _OTHER_ENGINE)
        )
    return Problem(f"bubblewrap said: {said}", (_OTHER_ENGINE,))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())


def _in_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    return (
        any(Path(mark).exists() for mark in marks)
        or "container" in os.environ
        or "KUBERNETES_SERVICE_HOST" in os.environ
    )
