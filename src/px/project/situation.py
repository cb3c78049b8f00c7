"""The full look at a project: its files, its record, and the flags from which its state follows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.project import lock as locks
from px.project import record as records
from px.project import warm
from px.project.fingerprint import made_alike, record_name
from px.project.selection import Selection
from px.project.state import Flags, Target

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home
    from px.project.discovery import Project
    from px.project.record import BuiltEnv, Record


@dataclass(frozen=True)
class Situation:
    """What was found; :meth:`flags` answers for one target."""

    project: Project
    record: Record
    inputs: str
    """One hash over every file that the env depends on (:attr:`Project.inputs`)."""
    lock_matches: bool

    def built(self, target: Target) -> BuiltEnv | None:
        return self.record.envs.get(target.value)

    def selection(self, target: Target) -> Selection:
        """What the env of this target was last built with; uv's defaults if it never was."""
        built = self.built(target)
        return Selection.from_json(built.selection) if built else Selection()

    def flags(self, target: Target, selection: Selection | None = None) -> Flags:
        built = self.built(target)
        wanted = selection or self.selection(target)
        exists = built is not None and warm.exists(built.env, target.value)
        return Flags(
            workspace=self.project.is_workspace,
            manifest_exists=True,
            lock_exists=self.project.lock.is_file(),
            lock_matches=self.lock_matches,
            env_exists=exists,
            env_matches=exists
            and built is not None
            and built.inputs == self.inputs
            and made_alike(built.as_json(), self.record.recorded_at)
            and built.selection == wanted.as_json(),
        )


# What uv has said yes to in this process: commands look a second time once they hold the project's lock.
_MATCHED: set[tuple[str, str]] = set()
NOTHING = Flags(
    workspace=False, manifest_exists=False, lock_exists=False, lock_matches=False, env_exists=False, env_matches=False
)


def inspect(home: Home, project: Project, *, offline: bool) -> Situation:
    """Look at everything; uv is asked about the lock only when the files changed since it last said yes."""
    record = records.load(home, project.root)
    inputs = record.digest(os.path.relpath(path, project.root) for path in project.inputs)
    asked = (os.fspath(project.root), inputs)
    matches = record.locked == inputs or asked in _MATCHED or locks.matches_manifest(project, offline=offline)
    if matches:
        record.locked = inputs
        _MATCHED.add(asked)
    return Situation(project, record, inputs, matches)


def remember(situation: Situation, target: Target, built: BuiltEnv) -> None:
    """Save that ``built`` is the env of this project, and point the project's link at it."""
    record, project = situation.record, situation.project
    table = project.manifest.workspace
    record.members = [os.path.relpath(m.path.parent, project.root) for m in project.members]
    record.patterns = [*table.members, "--", *table.exclude] if table else []
    record.globs = [
        [os.path.relpath(m.path.parent, project.root), key] for m in project.manifests for key in m.cache_keys
    ]
    record.locked = situation.inputs
    record.name = project.name
    record.envs[target.value] = built
    record.save()
    if table:
        # A member that was a project of its own before must not be found as one on the warm path.
        for member in project.members:
            record.path.with_name(record_name(os.fspath(member.path.parent))).unlink(missing_ok=True)
    if target is Target.HOST:
        link(project.root, built.env)


def link(root: Path, env: str) -> None:
    """``.px/envs/current`` points at the host env; a read-only working tree goes without."""
    directory = root / ".px"
    try:
        (directory / "envs").mkdir(parents=True, exist_ok=True)
        ignore = directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        current = directory / "envs" / "current"
        if not (current.is_symlink() and os.fspath(current.readlink()) == env):
            temporary = current.with_name(f".current.{os.getpid()}")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(env)
            temporary.replace(current)
    except OSError as e:
        from px import console

        console.detail(f"{directory} cannot be written ({e.strerror}); the env is at {env}")
