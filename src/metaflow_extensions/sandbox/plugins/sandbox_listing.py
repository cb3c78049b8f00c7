"""Finds the sandboxes that exist and ends them: for ``px sandbox ps``, ``px sandbox reap`` and the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins import owner
from metaflow_extensions.sandbox.plugins.backend import LABEL, RemoteBackend, SandboxInfo
from metaflow_extensions.sandbox.plugins.backends import LOCAL, get_backend, names
from metaflow_extensions.sandbox.plugins.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metaflow_extensions.sandbox.plugins.backend import SandboxBackend


def listing(backend: str | None, labels: Mapping[str, str]) -> tuple[list[dict[str, str]], list[str]]:
    """One row for each sandbox with these labels, and one text for each backend that could not be asked."""
    rows = []
    try:
        asked, problems = ([get_backend(backend)], []) if backend else _set_up()
    except BackendError as e:
        return [], [str(e)]
    for each in asked:
        try:
            rows += [_row(info) for info in each.sandboxes({LABEL: "metaflow", **labels})]
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
        found = get_backend(backend).sandboxes({LABEL: "metaflow", **labels})
    except BackendError as e:
        return [f"Sandboxes that this run may have left could not be listed: {e.what} They end with their lease."]
    said = []
    # A run of the same name and number may go on elsewhere, with the same key.
    for info in found if backend == LOCAL else filter(_is_left, found):
        problem = end(backend, info.sandbox_id)
        if problem is None:
            said.append(f"Ended the {backend} sandbox {info.sandbox_id}, which the run had left.")
        else:
            said.append(f"The {backend} sandbox {info.sandbox_id} could not be ended: {problem}")
    return said


def _set_up() -> tuple[list[SandboxBackend], list[str]]:
    """The local backend, and the providers that this user has a key for.  The others would only complain."""
    found, problems = [], []
    for name in names():
        try:
            backend = get_backend(name)
        except BackendError as e:
            problems.append(str(e))
            continue
        if not isinstance(backend, RemoteBackend) or backend.has_key:
            found.append(backend)
    return found, problems


def _row(info: SandboxInfo) -> dict[str, str]:
    labels = {key: info.labels.get(key, "") for key in ("flow", "run", "step", "task")}
    state = info.state
    # A provider does not know whether anybody waits for a sandbox. Of the owners on this machine, px does.
    if _is_left(info) and state in ("running", "started"):
        state = "orphaned"
    return {"backend": info.backend, "id": info.sandbox_id, "state": state, **labels, "created": info.created_at}


def _is_left(info: SandboxInfo) -> bool:
    """Whether a remote sandbox was left behind by a process of this machine."""
    return info.backend != LOCAL and owner.is_dead(info.labels.get(owner.LABEL, ""))
