"""What ``px sandbox ps`` and ``reap`` show and end.

At a provider a sandbox cannot tell whether its launcher lives; it is called orphaned when no launcher on this
machine has its run, which is what a user means who runs ``reap`` here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.backend import LABEL, BackendError, SandboxInfo
from metaflow_extensions.sandbox.plugins.backends import get_backend, names

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS = {"daytona": ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"), "e2b": ("E2B_API_KEY",)}


def listing(backend: str | None, labels: Mapping[str, str]) -> tuple[list[dict[str, str]], list[str]]:
    """Rows for all sandboxes with these labels, and what could not be asked."""
    rows, problems = [], []
    for name in (backend,) if backend else _usable():
        try:
            found = get_backend(name).sandboxes({LABEL: "metaflow", **labels})
        except BackendError as e:
            problems.append(str(e))
            continue
        rows += [_row(info) for info in found]
    return rows, problems


def end(backend: str, sandbox_id: str) -> str | None:
    """End one sandbox; what went wrong, or None."""
    try:
        get_backend(backend).destroy(sandbox_id)
    except BackendError as e:
        return str(e)
    return None


def _usable() -> list[str]:
    """The backends that this user has set up: asking one without a key would only be noise."""
    return [name for name in names() if not _KEYS.get(name) or any(os.environ.get(key) for key in _KEYS[name])]


def _row(info: SandboxInfo) -> dict[str, str]:
    labels = {key: info.labels.get(key, "") for key in ("flow", "run", "step", "task")}
    state = info.state
    if info.backend != "local" and state in ("running", "started") and not _launcher_here(labels["run"]):
        state = "orphaned"
    return {"backend": info.backend, "id": info.sandbox_id, "state": state, **labels, "created": info.created_at}


def _launcher_here(run: str) -> bool:
    """Whether a trampoline of this run is among this machine's processes."""
    wanted = [b"sandbox", b"step", b"--run-id", run.encode()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(word in words for word in wanted):
            return True
    return False
