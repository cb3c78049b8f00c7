"""The image of the px project around a flow, in the registry that the configuration names.

``--environment=px`` gives it to steps of @batch and @kubernetes, and providers make their templates from it.  It is the
project's image with what a task needs to reach the datastore, so nothing is installed when a task starts.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.settings import setting, setting_flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.project.context import Context
    from px.workflow.tasks.image import Checked, Wanted

READ = "docs/how-to/run-flows-elsewhere.md"


@dataclass(frozen=True)
class ProjectImage:
    """An image that a cluster or a provider can pull."""

    reference: str
    """``REGISTRY/NAME@sha256:…``"""
    sbx_id: str
    """The same as that of ``px run --sandbox``."""
    sent_bytes: int = 0
    """What had to be pushed for it: nothing if the registry had it."""

    def __str__(self) -> str:
        from px import console

        pushed = f"{console.size(self.sent_bytes)} pushed" if self.sent_bytes else "in the registry already"
        return f"{self.reference} (sbx_id {self.sbx_id[:12]}), {pushed}"


def flow_directory(script: str | Path) -> Path:
    """Where a flow is, as far as its project is concerned: a link to a flow may lie in none, and the flow in one."""
    path = Path(script).absolute()
    return (path.resolve() if path.is_symlink() and not has_project(path.parent) else path).parent


def has_project(flow_directory: Path) -> bool:
    """Whether there is a px project around a flow."""
    return _around(flow_directory) is not None


def check_registry(flow_directory: Path, backend: str) -> None:
    """Refuse, before anything runs, a step at a provider that would not find the project's packages there."""
    try:
        _registry(_project(flow_directory))
    except Unusable as e:
        other = {"e2b": "base"}.get(backend, "python:3.11")
        without = (
            f"Or do without the project's packages: image='{other}' of the step, or METAFLOW_SANDBOX_IMAGE={other}"
        )
        what = f"{e.what} At {backend}, the steps of this flow stand on the project around it, and its packages."
        raise Unusable(what, fix=[*e.fix, without], read=e.read) from None


@cache
def check_image(flow_directory: Path, datastore: str, platform: str, *, code: bool, apt: bool) -> Checked:
    """Refuse, before anything is packed, an image that cannot be packed or pushed; once in a process.

    ``datastore`` is the type of Metaflow's datastore (``s3``, ``azure``, ``gs``).  ``platform`` is where the image
    shall run (``linux/arm64``); empty for METAFLOW_SANDBOX_PLATFORM, and else for this machine's.  Without ``code`` the
    image does not change when a flow does: Metaflow brings the flow.  With ``apt`` more can be installed into it.
    Whatever is wrong is :class:`Unusable`, with its fix: no project, no registry, no login, a dirty tree, an old lock.
    """
    from px.workflow.tasks.image import check_task_image

    context = _project(flow_directory)
    with _as_unusable(context):
        return check_task_image(context, _wanted(context, datastore, platform, code=code, apt=apt))


@cache
def project_image(
    flow_directory: Path, datastore: str, platform: str = "", *, code: bool = True, apt: bool = False
) -> ProjectImage:
    """Pack and push the image, once in a process; a second run finds it in the registry and pushes nothing."""
    from px.workflow.tasks.image import task_image

    checked = check_image(flow_directory, datastore, platform, code=code, apt=apt)
    with _as_unusable(checked.context):
        made = task_image(checked)
    return ProjectImage(made.reference, made.sbx_id, made.sent_bytes)


def _wanted(context: Context, datastore: str, platform: str, *, code: bool, apt: bool) -> Wanted:
    from px.workflow.tasks.image import Wanted

    return Wanted(
        registry=_registry(context),
        datastore=datastore,
        platform=platform or str(setting("SANDBOX_PLATFORM") or ""),
        insecure=setting_flag("SANDBOX_REGISTRY_INSECURE"),
        allow_dirty=setting_flag("SANDBOX_ALLOW_DIRTY"),
        apt=apt,
        code=code,
    )


@contextmanager
def _as_unusable(context: Context) -> Iterator[None]:
    from px.errors import PxError

    try:
        yield
    except PxError as e:
        raise _unusable(e) from None
    except OSError as e:
        raise Unusable(
            f"px could not pack the project's image in {context.home.root}: {e}",
            fix=["Name a directory that has room and that you may write to: export PX_HOME=…"],
        ) from None


def _around(flow_directory: Path) -> Path | None:
    try:
        from px.errors import PxError
        from px.workflow.sandbox import project_around
    except ImportError:
        raise Unusable(
            "The project's image is packed by px, which is not installed.",
            fix=["Install it: pip install 'px-sandbox[metaflow]'"],
        ) from None
    try:
        return project_around(flow_directory)
    except PxError as e:  # a manifest that is not valid
        raise _unusable(e) from None


def _project(flow_directory: Path) -> Context:
    root = _around(flow_directory)
    if root is None:
        raise Unusable(
            f"There is no px project around {flow_directory}: no pyproject.toml with a lock or a [tool.px] table.",
            fix=["Make one beside the flow: px init && px add PACKAGE … && px sync --sandbox"],
            read=READ,
        )
    from px.project.context import Context

    return Context.from_environment(root)


def _registry(context: Context) -> str:
    named = str(setting("SANDBOX_REGISTRY") or "") or context.project.manifest.registry
    if not named:
        raise Unusable(
            "No registry is named that the project's image could be pushed to.",
            fix=[
                "For you: export METAFLOW_SANDBOX_REGISTRY=registry.example.org/team",
                'For the project, in pyproject.toml: [tool.px] registry = "registry.example.org/team"',
            ],
            read=READ,
        )
    return named


def _unusable(error: Exception) -> Unusable:
    """px's own error; what it advises for its own command is said in Metaflow's words."""
    text = str(error).replace("px pack image --allow-dirty", "export METAFLOW_SANDBOX_ALLOW_DIRTY=1")
    return Unusable(text, read="docs/reference/errors.md")
