"""Finding the project or workspace that a directory belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from px.errors import PxError
from px.project.manifest import FILE, OLD_MANIFESTS, Manifest

if TYPE_CHECKING:
    from pathlib import Path

UV_LOCK = "uv.lock"
PYLOCK = "pylock.toml"
POETRY = "This is a project of Poetry's. Make it one of uv's, then run px sync: uvx migrate-to-uv"
_EDITABLE = re.compile(r'^source = \{ editable = "(.*)" \}$', re.MULTILINE)
_LOCAL = re.compile(r'^source = \{ (?:editable|virtual|directory) = "(.*)" \}$', re.MULTILINE)


@dataclass(frozen=True)
class Project:
    """A standalone project, or a workspace with its members; ``root`` holds the lock and the env."""

    root: Path
    manifest: Manifest
    members: tuple[Manifest, ...] = ()
    """The manifests of the members other than the root's own."""
    current: Manifest | None = None
    """The member that the command was given in, if it is not the root."""

    @property
    def is_workspace(self) -> bool:
        return self.manifest.workspace is not None

    @property
    def here(self) -> Manifest:
        """The manifest nearest to where the command runs."""
        return self.current or self.manifest

    @property
    def name(self) -> str:
        return self.here.name or self.root.name

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return (self.manifest, *self.members)

    @cached_property
    def lock(self) -> Path:
        """The lock L: ``uv.lock``, or ``pylock.toml`` where there is that and no ``uv.lock``."""
        uv_lock, pylock = self.root / UV_LOCK, self.root / PYLOCK
        return pylock if pylock.is_file() and not uv_lock.is_file() else uv_lock

    @property
    def uses_pylock(self) -> bool:
        return self.lock.name == PYLOCK

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Every file that the env depends on: manifests and what builds read, lock, uv's settings and the pin."""
        read = [path for m in self.manifests for path in (m.path, *m.build_files)]
        read += [d / name for d in self.locked_directories for name in (FILE, *OLD_MANIFESTS)]
        return (*dict.fromkeys(read), self.lock, self.root / "uv.toml", self.root / ".python-version")

    @property
    def beside(self) -> tuple[Path, ...]:
        """The editable dependencies that lie outside of the project: live in a sandbox, copied into an image."""
        return tuple((self.root / p).resolve() for p in _EDITABLE.findall(self._lock_text) if p.startswith(("..", "/")))

    @cached_property
    def locked_directories(self) -> tuple[Path, ...]:
        """The local projects that the lock was made from: also those that only other local projects depend on."""
        return tuple(self.root / path for path in _LOCAL.findall(self._lock_text))

    @cached_property
    def _lock_text(self) -> str:
        try:
            # Not of a pipe, which a target may have put there: it would never end.
            return self.lock.read_text(encoding="utf-8") if self.lock.is_file() else ""
        except (OSError, UnicodeDecodeError):
            return ""


def find_manifest(directory: Path) -> Path | None:
    """The nearest ``pyproject.toml`` at or above ``directory``."""
    for here in (directory, *directory.parents):
        candidate = here / FILE
        if candidate.is_file():
            return candidate
    return None


def discover(directory: Path) -> Project:
    """The project around ``directory``; none is PX001, or PX005 where a manifest lacks only the table."""
    found = try_discover(directory)
    if found is None:
        manifest = find_manifest(directory)
        raise PxError("PX001", cwd=directory) if manifest is None else no_table(manifest)
    return found


def no_table(manifest: Path) -> PxError:
    """PX005 for a manifest without [project]; one of Poetry's has all that belongs there, elsewhere."""
    fix = [POETRY] if "poetry" in Manifest.read(manifest).document.get("tool", {}) else []
    return PxError("PX005", path=manifest, fix=fix, whole_fix=bool(fix))


def try_discover(directory: Path) -> Project | None:
    nearest = _nearest(directory)
    if nearest is None:
        return None
    if nearest.workspace is not None:
        return _workspace(nearest, None)
    root = _workspace_above(nearest)
    if root is not None:
        return _workspace(root, nearest)
    return Project(nearest.path.parent, nearest)


def _nearest(directory: Path) -> Manifest | None:
    path = find_manifest(directory)
    while path is not None:
        manifest = Manifest.read(path)
        if manifest.is_project or manifest.workspace is not None:
            return manifest
        # A pyproject.toml with tool settings only is no project; look further up.
        path = find_manifest(path.parent.parent) if path.parent != path.parent.parent else None
    return None


def _workspace_above(member: Manifest) -> Manifest | None:
    directory = member.path.parent
    for above in directory.parents:
        candidate = above / FILE
        if not candidate.is_file():
            continue
        manifest = Manifest.read(candidate)
        if manifest.workspace is not None:
            return manifest if directory in manifest.workspace.expand(above) else None
    return None


def _workspace(root: Manifest, current: Manifest | None) -> Project:
    table = root.workspace
    directories = table.expand(root.path.parent) if table is not None else ()
    members = tuple(Manifest.read(d / FILE) for d in directories if d != root.path.parent)
    return Project(root.path.parent, root, members, current)
