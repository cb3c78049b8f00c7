"""What every step of a command needs, computed once at the top and passed down as one object."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from px import console
from px.home import Home
from px.project.discovery import Project, discover
from px.project.settings import Settings
from px.project.uv import Uv
from px.store.objects import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def named_directory(base: Path, text: str) -> Path:
    """A directory that the user names; without ``..``, for what lies above is looked for in the path's own text."""
    path = base / text
    return path.resolve() if ".." in path.parts else path


@dataclass(frozen=True)
class Context:
    """The store, the project around a directory, and what may be done to it."""

    store: Store
    directory: Path
    """Where the command was given."""
    frozen_by: str | None = None
    """What froze the project (``--frozen`` or ``CI``), or None when it may change."""
    make_uv: Callable[[Context, Path], Uv] | None = None
    """Who runs uv; None is uv on this machine.  For a sandbox it runs in one (:mod:`px.sandbox.uv`)."""

    @classmethod
    def from_environment(cls, directory: Path, *, offline: bool = False, frozen: bool = False) -> Context:
        """The context that ``PX_HOME``, ``CI`` and ``UV_OFFLINE`` ask for."""
        offline = offline or os.environ.get("UV_OFFLINE", "").lower() in ("1", "true", "yes")
        frozen_by = "--frozen" if frozen else "CI" if console.in_ci() else None
        return cls(Store(Home.from_environment(), offline=offline), directory, frozen_by)

    @property
    def home(self) -> Home:
        return self.store.home

    @property
    def offline(self) -> bool:
        return self.store.offline

    @cached_property
    def project(self) -> Project:
        return discover(self.directory)

    @property
    def root(self) -> Path:
        return self.project.root

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.root)

    @property
    def cache(self) -> str:
        """The shared cache that ``PX_CACHE`` or else the project names; an empty text for none."""
        named = os.environ.get("PX_CACHE")
        return self.project.manifest.cache if named is None else named

    @property
    def uv(self) -> Uv:
        return self._uv_in(self.root)

    @property
    def uv_here(self) -> Uv:
        """uv, run where the command was given: in a workspace that may be one of its members."""
        return self._uv_in(self.directory)

    def _uv_in(self, directory: Path) -> Uv:
        return Uv(directory, self.offline) if self.make_uv is None else self.make_uv(self, directory)

    def look_again(self) -> Context:
        """The same context, for a project whose files have changed."""
        return replace(self)
