"""Projects that px must build before it can install them: with compiled parts, or with a version that is computed.

Its build backend makes a wheel of the files that ``px pack image`` would take, in the builder sandbox.  The image
gets the wheel's metadata and those of its modules that the working tree lacks; everything else stays live at ``/app``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename

from px import foreign
from px.env.artifacts import Artifact
from px.env.wheel import WheelOf, unpack_wheel
from px.errors import PxError
from px.platforms import host_architecture
from px.project.git.history import clone, commit_of
from px.project.git.shadow import git
from px.project.git.tree import changes, governing_repository
from px.project.worktree.tree import scan
from px.store.canonical import oid_of

if TYPE_CHECKING:
    from pathlib import Path

    from px.project.git.history import Commit
    from px.project.worktree.tree import AppTree
    from px.sandbox.build.builder import SandboxBuilder
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload

_MODULES = re.compile(r"(?P<name>.+?)(\.(cpython|abi3|pypy)[^/]*)?\.(so|py)")


@dataclass(frozen=True)
class BuiltProject:
    """What the project's build backend made of it."""

    oid: str
    version: str
    metadata: str
    entry_points: str
    tree: Path
    """The wheel's files, as they would be in site-packages."""
    lacking: tuple[str, ...]
    """Those that the working tree does not have."""

    @property
    def programs(self) -> dict[str, bytes]:
        """What the wheel has for ``bin`` beside entry points: compiled programs, setuptools' scripts."""
        directory = self.tree.parent / "bin"
        return {path.name: path.read_bytes() for path in sorted(directory.iterdir())} if directory.is_dir() else {}

    @property
    def modules(self) -> dict[str, str]:
        """Module name -> file, for what is lacking."""
        found = {path: _MODULES.fullmatch(path) for path in self.lacking}
        names = {path: match["name"].removesuffix("/__init__") for path, match in found.items() if match}
        return {name.replace("/", "."): path for path, name in names.items()}


def build_project(
    builder: SandboxBuilder, root: Path, name: str, sources: tuple[str, ...], *, compiled: bool
) -> BuiltProject:
    """The project's wheel, built if its inputs changed; ``sources`` are the directories of its modules."""
    if compiled and builder.base.architecture != host_architecture():
        problem = f"{name} has compiled parts, and px cannot build for {builder.base.architecture} on this machine"
        raise PxError("PX903", problem=problem, fix=[f"Pack on a {builder.base.architecture} machine."])
    source = _Source.of(root)
    wanted = builder.capabilities | ({"git"} if source.commit else set())
    # The manifest's capabilities are those of the project itself.
    builder = replace(builder, always=wanted, compiler=compiled, prepared=True)
    artifact = Artifact(name, "", "directory", ".", subdirectory=source.subdirectory, uploaded=source.time(builder))
    files = scan(root)
    key = oid_of("project-build", [*source.identity(files, sources, builder), *builder.identity(artifact)])

    def make(draft: Draft) -> Payload:
        # In the store's own tmp, which is swept: a build that is killed leaves nothing elsewhere.
        with builder.store.draft() as scratch:
            out = scratch.path / "out"
            out.mkdir()
            source.copy(scratch.path / "source")
            wheel = builder.build(artifact, scratch.path / "source", out)
            version = str(parse_wheel_filename(wheel.name)[1])
            return unpack_wheel(wheel, draft.tree(), WheelOf(name, version, key))

    oid = builder.store.ensure("pkg-build", key, make, label=f"{name} itself")
    return _read(builder, oid, files, sources)


def _read(builder: SandboxBuilder, oid: str, files: AppTree, sources: tuple[str, ...]) -> BuiltProject:
    payload = builder.store.payload("pkg-build", oid)
    site = builder.store.tree("pkg-build", oid) / "lib"
    info = site / str(payload["dist_info"])
    points = info / "entry_points.txt"
    here = {os.path.normpath(str(entry[1])) for entry in files.entries}
    installed = (
        os.fspath(p.relative_to(site)) for p in sorted(site.rglob("*")) if p.is_file() and info not in p.parents
    )
    lacking = tuple(p for p in installed if not any(os.path.normpath(f"{d}/{p}") in here for d in sources))
    return BuiltProject(
        oid=oid,
        version=str(payload["version"]),
        metadata=(info / "METADATA").read_text(encoding="utf-8"),
        entry_points=points.read_text(encoding="utf-8") if points.is_file() else "",
        tree=site,
        lacking=lacking,
    )


@dataclass(frozen=True)
class _Source:
    """The files that a build sees: the whole repository, because backends ask git, or else the project's directory."""

    root: Path
    top: Path
    commit: Commit | None

    @classmethod
    def of(cls, root: Path) -> _Source:
        top = governing_repository(root)
        commit = commit_of(top) if top is not None else None
        return cls(root, top if top is not None and commit is not None else root, commit)

    @property
    def subdirectory(self) -> str:
        relative = os.fspath(self.root.relative_to(self.top))
        return "" if relative == "." else relative

    def time(self, builder: SandboxBuilder) -> str:
        """The commit's, which is what a build may call the time; without one, the base's."""
        pinned = datetime.fromisoformat(builder.base.lock.date)
        return (datetime.fromtimestamp(self.commit.time, UTC) if self.commit else pinned).isoformat()

    def identity(self, files: AppTree, sources: tuple[str, ...], builder: SandboxBuilder) -> list[Value]:
        """What the wheel depends on.  Modules are not taken from it, so that editing one builds nothing."""
        live = tuple(f"{d}/" for d in sources if d != ".")
        kept: list[Value] = [
            list(entry) for entry in files.entries
            if entry[0] != "d" and (builder.compiler or "/" not in str(entry[1])) and not _is_live(str(entry[1]), live)
        ]  # fmt: skip
        return [self.subdirectory, kept, *(self._history(self.commit) if self.commit else [])]

    def _history(self, commit: Commit) -> list[Value]:
        """The commit, the versions that it may be described by, and whether it is what is here."""
        tags = git(self.top, "for-each-ref", "refs/tags", "--merged", "HEAD", "--format=%(refname) %(objectname)")
        return [commit.revision, tags, bool(changes(self.top, untracked=False))]

    def copy(self, into: Path) -> None:
        """The commit with its history, and over it the files as they are now."""
        if self.commit:
            clone(self.top, into)
        for kind, name, what, *more in scan(self.top).entries:
            path = into / str(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind != "d":
                path.unlink(missing_ok=True)
            if kind == "l":
                path.symlink_to(str(what))
            elif kind == "f":
                file = self.top / str(name)
                foreign.copy(file.parent, file.name, path, int(more[0]))
                path.chmod(int(what))
        for name in git(self.top, "ls-files", "--deleted", "-z").split("\0")[:-1] if self.commit else ():
            (into / name).unlink(missing_ok=True)


def _is_live(path: str, live: tuple[str, ...]) -> bool:
    # With modules at the top, those of packages are live and setup.py is not.
    return path.endswith(".py") and (path.startswith(live) if live else "/" in path)
