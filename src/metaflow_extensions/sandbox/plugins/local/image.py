"""Which sandbox a local step stands on.

The first of these that applies:

1. ``image=`` of the step: a px base, or the directory of a px project.
2. The default base, if ``@pypi`` or ``@conda`` gives the step packages of its own.
3. The px project around the flow.  The step gets the sandbox that ``px run --sandbox`` has there.
4. The default base.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.errors import Unusable

if TYPE_CHECKING:
    from px.warm.record import BuiltSandbox


def check(image: str | None) -> None:
    """Refuse an image that is none.  Build nothing."""
    if image is None or _project_directory(image) is not None:
        return
    # Only now, because this import takes longer than the rest of the check, and most steps name no base.
    from px.workflow.sandbox import bare_bases

    known = bare_bases()
    if image not in known:
        raise Unusable(
            f"image={image!r} is neither a px base ({', '.join(known)}) nor the directory of a px project.",
            fix=[f"Take a base: image='{known[0]}'", "Or name a project's directory: image='./environment'"],
        )


def step_sandbox(image: str | None, flow_directory: Path, *, has_own_packages: bool) -> BuiltSandbox:
    """The sandbox of a step, built if need be."""
    from px.home import Home
    from px.project.context import Context
    from px.store.objects import Store
    from px.workflow.door import ensure_sandbox
    from px.workflow.sandbox import bare_bases, bare_sandbox, project_around

    project = None
    if image is not None:
        project = _project_directory(image)
    elif not has_own_packages:
        project = project_around(flow_directory)
    if project is not None:
        # This also holds the sandbox against garbage collection, for as long as the run lives.
        return ensure_sandbox(Context.from_environment(project)).built
    return bare_sandbox(Store(Home.from_environment()), image or bare_bases()[0])


def _project_directory(image: str) -> Path | None:
    path = Path(image).expanduser()
    if not (path / "pyproject.toml").is_file():
        return None
    return path.resolve() if ".." in path.parts else path.absolute()
