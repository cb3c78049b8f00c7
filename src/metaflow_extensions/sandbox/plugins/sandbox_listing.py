"""Finds the sandboxes that exist and ends them: for ``px sandbox ps``, ``px sandbox reap`` and the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.backend import LABEL, RemoteBackend, SandboxInfo
from metaflow_extensions.sandbox.plugins.backends import get_backend, names
from metaflow_extensions.sandbox.plugins.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping


def listing(backend: str | None, labels: Mapping[str, str]) -> tuple[list[dict[str, str]], list[str]]:
    """One row for each sandbox with these labels, and one text for each backend that could not be asked."""
    rows, problems = [], []
    for name in (backend,) if backend else _set_up():
        try:
            rows += [_row(info) for info in get_backend(name).sandboxes({LABEL: "metaflow", **labels})]
        except BackendError as e:
            problems.append(str(e))
    return rows, problems


def end(backend: str, sandbox_id: str) -> str | None:
    """End one sandbox; the answer says what went wrong, if anything did."""
    try:
        get_backend(backend).destroy(sandbox_id)
    except BackendError as e:
        return str(e)
    return None


def reap(backend: str, labels: Mapping[str, str]) -> list[str]:
    """End what a run has left behind, and say so: one line for each sandbox, or for what went wrong."""
    try:
        left = get_backend(backend).sandboxes({LABEL: "metaflow", **labels})
    except BackendError as e:
        return [f"Sandboxes that this run may have left could not be listed: {e.what} They end with their lease."]
    said = []
    for info in left:
        problem = end(backend, info.sandbox_id)
        if problem is None:
            said.append(f"Ended the {backend} sandbox {info.sandbox_id}, which the run had left.")
        else:
            said.append(f"The {backend} sandbox {info.sandbox_id} could not be ended: {problem}")
    return said


def _set_up() -> list[str]:
    """The local backend, and the providers that this user has a key for.  The others would only complain."""
    found = [get_backend(name) for name in names()]
    return [backend.name for backend in found if not isinstance(backend, RemoteBackend) or backend.has_key]


def _row(info: SandboxInfo) -> dict[str, str]:
    labels = {key: info.labels.get(key, "") for key in ("flow", "run", "step", "task")}
    state = info.state
    # A provider does not know whether anybody waits for a sandbox. Here, it is enough that nobody on this machine does.
    if info.backend != "local" and state in ("running", "started") and not _has_trampoline(labels["run"]):
        state = "orphaned"
    return {"backend": info.backend, "id": info.sandbox_id, "state": state, **labels, "created": info.created_at}


def _has_trampoline(run: str) -> bool:
    """Whether a process of this machine runs ``flow.py sandbox step`` for this run."""
    wanted = [b"sandbox", b"step", b"--run-id", run.encode()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(word in words for word in wanted):
            return True
    return False
