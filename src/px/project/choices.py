"""Extras and groups of a project that is locked by ``pylock.toml``.

Such a lock may have markers for them (PEP 751), or it may have been exported with some of them mixed in, as uv does.
Then nothing in it says so, and px compares what the manifest wants of an extra or a group with what is locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from px.project.discovery import Project
    from px.project.selection import Selection

Choice = tuple[list[str] | None, list[str] | None]


def choices(project: Project, document: Mapping[str, Any], selection: Selection) -> Choice:
    """The extras and the groups to select; None is the lock's default, as with uv's export, which has applied them."""
    if not project.uses_pylock:
        return None, None
    lock = _Lock(project, document)
    extras = lock.serve("extra", project.manifest.extras if selection.all_extras else selection.extras)
    if not (selection.groups or selection.no_groups or selection.all_groups or not selection.default_groups):
        return extras, None
    asked = set(project.manifest.groups if selection.all_groups else selection.groups) - set(selection.no_groups)
    # Nobody asked for the default groups by name: a lock may be without them.
    default = set(project.manifest.default_groups if selection.default_groups else ()) - set(selection.no_groups)
    lock.leave_out(set(project.manifest.groups) - asked - default)
    marked = default & set(document.get("dependency-groups", ()))
    return extras, sorted({*lock.serve("group", sorted(asked)), *marked})


class _Lock:
    """What a ``pylock.toml`` can be asked for."""

    def __init__(self, project: Project, document: Mapping[str, Any]):
        self._project = project
        self._marked = {"extra": document.get("extras", ()), "group": document.get("dependency-groups", ())}
        self._packages = {str(row.get("name")) for row in document.get("packages", ()) if isinstance(row, dict)}
        manifest = project.manifest
        self._direct = set(_names(manifest.project.get("dependencies", ())))
        self._tables = {
            "extra": manifest.project.get("optional-dependencies", {}),
            "group": manifest.document.get("dependency-groups", {}),
        }

    def serve(self, kind: str, names: Iterable[str]) -> list[str]:
        """The names for which the lock has markers; those that it has without any are in it already."""
        return [name for name in names if not self._is_mixed_in(kind, name)]

    def _is_mixed_in(self, kind: str, name: str) -> bool:
        if name in self._marked[kind]:
            return False
        if name not in self._tables[kind]:
            known = ", ".join(sorted({*self._tables[kind], *self._marked[kind]})) or "none"
            raise self._refuse(f"the project has no {kind} {name!r} (it has: {known})")
        if not set(_names(self._tables[kind][name])) <= self._packages:
            raise self._refuse(f"it was made without the {kind} {name!r}", f"with --{kind} {name}")
        return True

    def leave_out(self, groups: Iterable[str]) -> None:
        """Refuse if a group that is not wanted is in the lock, without a marker by which it could be left out."""
        for name in sorted(set(groups) - set(self._marked["group"])):
            own = set(_names(self._tables["group"].get(name, ()))) - self._direct
            if own & self._packages:
                raise self._refuse(f"the group {name!r} is in it and cannot be left out", f"with --no-group {name}")

    def _refuse(self, problem: str, how: str = "") -> PxError:
        fix = []
        if how:
            fix = [
                f"Write it again with the tool that made it; with uv, {how}: uv export --format pylock.toml …",
                "Or move to uv's lock, which has all of them: rm pylock.toml && px sync",
            ]
        return PxError("PX107", lock=self._project.lock.name, problem=problem, fix=fix)


def _names(requirements: Iterable[object]) -> Iterable[str]:
    """The packages that are always wanted; what has a marker may not be, and groups may include others."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    for text in requirements:
        try:
            found = Requirement(text) if isinstance(text, str) else None
        except InvalidRequirement:
            continue
        if found is not None and found.marker is None:
            yield canonicalize_name(found.name)
