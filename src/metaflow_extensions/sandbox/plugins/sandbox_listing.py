"""Finds the sandboxes and templates that exist: for ``px sandbox ps, reap, templates`` and the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from metaflow_extensions.sandbox.plugins import owner
from metaflow_extensions.sandbox.plugins.backend import LABEL, RemoteBackend, SandboxInfo
from metaflow_extensions.sandbox.plugins.backends import LOCAL, get_backend, names
from metaflow_extensions.sandbox.plugins.errors import BackendError, Unusable
from metaflow_extensions.sandbox.plugins.settings import shown
from metaflow_extensions.sandbox.plugins.templates.made import MakesTemplates, TemplateInfo
from metaflow_extensions.sandbox.plugins.templates.names import PROJECT, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metaflow_extensions.sandbox.plugins.backend import SandboxBackend

_T = TypeVar("_T")


def listing(backend: str | None, labels: Mapping[str, str]) -> tuple[list[dict[str, str]], list[str]]:
    """One row for each sandbox with these labels, and one text for each backend that could not be asked."""
    found, problems = _ask(backend, lambda each: each.sandboxes({LABEL: "metaflow", **labels}))
    return [_row(info) for info in found], [shown(e) for e in problems]


def templates(backend: str | None) -> tuple[list[dict[str, str]], list[str]]:
    """The same for templates and snapshots that px made."""
    found, problems = _ask(backend, lambda each: _templates(each, asked=backend is not None))
    return [_template_row(info) for info in found], [shown(e) for e in problems]


def remove_template(backend: str, name: str) -> str | None:
    """Remove one template; the answer says what went wrong, if anything did."""
    _, problems = _ask(backend, lambda each: [_makes_templates(each).remove_template(name)])
    return shown(problems[0]) if problems else None


def end(backend: str, sandbox_id: str) -> str | None:
    """End one sandbox; the answer says what went wrong, if anything did."""
    _, problems = _ask(backend, lambda each: [each.destroy(sandbox_id)])
    return shown(problems[0]) if problems else None


def reap(backend: str, labels: Mapping[str, str]) -> list[str]:
    """End what a run has left behind, and say so: one line for each sandbox, or for what went wrong."""
    found, problems = _ask(backend, lambda each: each.sandboxes({LABEL: "metaflow", **labels}))
    said = [
        f"Sandboxes that this run may have left could not be listed: {shown(e.what)} They end with their lease."
        for e in problems
    ]
    # A run of the same name and number may go on elsewhere, with the same key.
    for info in found if backend == LOCAL else filter(_is_left, found):
        problem = end(backend, info.sandbox_id)
        if problem is None:
            said.append(f"Ended the {backend} sandbox {info.sandbox_id}, which the run had left.")
        else:
            said.append(f"The {backend} sandbox {info.sandbox_id} could not be ended: {problem}")
    return said


def _ask(backend: str | None, question: Callable[[SandboxBackend], list[_T]]) -> tuple[list[_T], list[BackendError]]:
    """What one backend answers, or all that are set up; and what kept one from answering."""
    try:
        asked, problems = ([get_backend(backend)], []) if backend else _set_up()
    except BackendError as e:
        return [], [e]
    found: list[_T] = []
    for each in asked:
        try:
            found += question(each)
        except BackendError as e:
            problems.append(e)
    return found, problems


def _templates(backend: SandboxBackend, *, asked: bool) -> list[TemplateInfo]:
    return _makes_templates(backend).templates() if asked or isinstance(backend, MakesTemplates) else []


def _makes_templates(backend: SandboxBackend) -> MakesTemplates:
    if isinstance(backend, MakesTemplates):
        return backend
    raise Unusable(f"The backend {backend.name} has no templates.", fix=["Ask all that have: px sandbox templates"])


def _set_up() -> tuple[list[SandboxBackend], list[BackendError]]:
    """The local backend, and the providers that this user has a key for.  The others would only complain."""
    found: list[SandboxBackend] = []
    problems: list[BackendError] = []
    for name in names():
        try:
            backend = get_backend(name)
        except BackendError as e:
            problems.append(e)
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


def _template_row(info: TemplateInfo) -> dict[str, str]:
    read = parse(info.name)
    sbx_id = read.source if read is not None and read.kind == PROJECT else ""
    times = {"created": info.created_at, "used": info.used_at}
    return {"backend": info.backend, "name": info.name, "state": info.state, "sbx_id": sbx_id, **times}


def _is_left(info: SandboxInfo) -> bool:
    """Whether a remote sandbox was left behind by a process of this machine."""
    return info.backend != LOCAL and owner.is_dead(info.labels.get(owner.LABEL, ""))
