"""The lock L: whether it matches the manifest, and reading it as the one list of packages that px installs from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from px import bounds
from px.errors import PxError
from px.project import uv

if TYPE_CHECKING:
    from packaging.pylock import Pylock

    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.selection import Selection


def matches_manifest(context: Context) -> bool:
    """Whether L was made from M as it is now."""
    project = context.project
    if not project.lock.is_file():
        return False
    if project.uses_pylock:
        return _pylock_covers(project)
    done = context.uv.run("lock", "--check")
    if done.ok:
        return True
    if "needs to be updated" in done.stderr or "Unable to find lockfile" in done.stderr:
        return False
    if "Failed to parse `uv.lock`" in done.stderr or "Failed to parse: `uv.lock`" in done.stderr:
        raise PxError("PX101", lock=project.lock.name, problem=uv.explain(done.stderr))
    # Neither a yes nor a no: the manifest no longer resolves, or the index cannot be reached.
    if "No solution found" in done.stderr:
        return False
    raise uv.failure("check the lock", done, _RELOCK_REMEDY)


def _pylock_covers(project: Project) -> bool:
    """A pylock.toml does not say what it was made from; px checks that it satisfies every direct dependency."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    locked = {p.name: p.version for p in read_pylock(project).packages}
    for manifest in project.manifests:
        for text in manifest.project.get("dependencies", ()):
            try:
                requirement = Requirement(text)
            except InvalidRequirement as e:
                raise PxError("PX003", path=manifest.path, problem=f"dependency {text!r}: {e}") from e
            name = canonicalize_name(requirement.name)
            if name not in locked:
                if requirement.marker is None:
                    return False
                continue
            version = locked[name]
            if version is not None and not requirement.specifier.contains(version, prereleases=True):
                return False
    return True


def export(context: Context, selection: Selection) -> dict[str, Any]:
    """The part of the lock that ``selection`` asks for, as a PEP 751 document."""
    project = context.project
    if project.uses_pylock:
        return _read(project)
    arguments = ["export", "--format", "pylock.toml", "--frozen", "--no-header", "--quiet", *selection.uv_flags()]
    if project.is_workspace:
        arguments.append("--all-packages")
    done = context.uv.run(*arguments)
    if not done.ok:
        reason = uv.explain(done.stderr)
        if "uv.lock" in reason:
            raise PxError("PX101", lock=project.lock.name, problem=reason)
        remedy = "Check the names of groups and extras: px status -v"
        if "incompatible with the declared conflicts" in reason:
            remedy = "Name one of them only, with --extra or --group: they exclude each other in [tool.uv].conflicts."
        raise uv.failure("read the lock", done, remedy)
    return _parse(project, done.stdout)


def read_pylock(project: Project) -> Pylock:
    return to_pylock(project, _read(project))


def to_pylock(project: Project, document: dict[str, Any]) -> Pylock:
    from packaging.pylock import Pylock, PylockValidationError

    try:
        return Pylock.from_dict(document)
    except PylockValidationError as e:
        raise PxError("PX101", lock=project.lock.name, problem=str(e)) from e


def _read(project: Project) -> dict[str, Any]:
    try:
        return bounds.read_toml(project.lock)
    except ValueError as e:
        raise PxError("PX101", lock=project.lock.name, problem=str(e)) from e


def _parse(project: Project, text: str) -> dict[str, Any]:
    try:
        return bounds.parse_toml(text)
    except ValueError as e:
        raise PxError("PX101", lock=project.lock.name, problem=str(e)) from e


def relock(context: Context, *, upgrade: tuple[str, ...] | None = None) -> None:
    """Bring L up to date with M; ``upgrade`` lets the named packages (or, if empty, all) move."""
    if context.project.uses_pylock:
        raise PxError("PX105", command="update" if upgrade is not None else "sync")
    flags: list[str] = []
    if upgrade is not None:
        flags = [f for name in upgrade for f in ("--upgrade-package", name)] or ["--upgrade"]
    context.uv.must("lock the project", "lock", *flags, remedy=_RELOCK_REMEDY)


_RELOCK_REMEDY = (
    "Correct what uv names: a requirement in pyproject.toml, or the way to the index (network, credentials)."
)
