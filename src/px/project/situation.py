"""The full look at a project: its files, its record, and the flags from which its state follows.

The record says for which manifests and lock the project's envs were built.  It is one JSON file under ``PX_HOME/refs``,
outside the project, so that a read-only working tree can be used and so that garbage collection finds its roots in one
place.  The warm path reads the same file through :mod:`px.warm.record`.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import __version__, console, foreign
from px.errors import PxError
from px.project import lock as locks
from px.project.parts import digest, parts
from px.project.selection import Selection
from px.project.state import Flags, Target
from px.store.files import write_json
from px.warm import record as warm
from px.warm.places import STATE
from px.warm.record import BuiltSandbox, made_alike, parts_of, record_name

if TYPE_CHECKING:
    from px.home import Home
    from px.project.context import Context
    from px.project.discovery import Project
    from px.store.objects import Store
    from px.warm.record import Built


@dataclass
class ProjectRecord:
    """The record of one project; :meth:`save` writes it whole."""

    path: Path
    root: Path
    name: str = ""
    members: list[str] = field(default_factory=list)
    """Member directories relative to the root, as they were found."""
    workspace: dict[str, list[str]] = field(default_factory=dict)
    """The patterns by which a workspace finds its members, and those that it excludes."""
    globs: list[list[str]] = field(default_factory=list)
    """Directory relative to the root, and pattern: what matches is an input."""
    inputs: dict[str, list[Any]] = field(default_factory=dict)
    """Relative path -> [size, mtime, ctime, inode, sha256], or [] where the file is not there."""
    network: dict[str, Any] = field(default_factory=dict)
    """The manifest's table of that name: a warm run has the host's network, or none, and no other."""
    gpu: bool = False
    """Whether the manifest says anything of GPUs: a warm run has none."""
    recorded_at: int = 0
    parts: dict[str, str] = field(default_factory=dict)
    """What counts of the inputs (:mod:`px.project.parts`), when the record was written."""
    locked: str = ""
    """The digest of the parts for which the lock was found to match the manifest."""
    envs: dict[str, Built] = field(default_factory=dict)

    def look(self, project: Project) -> bool:
        """Look at the inputs, reading only those that may have changed; whether any of them is another file now."""
        root, known = os.fspath(self.root), self.inputs
        names = sorted(os.path.relpath(path, root) for path in project.inputs)
        self.inputs = {n: warm.look(root, n, known.get(n), self.recorded_at) for n in names}
        self.parts = parts(project, self.inputs)
        return {n: entry[4:] for n, entry in self.inputs.items()} != {n: entry[4:] for n, entry in known.items()}

    def describe(self, project: Project) -> None:
        """Take over what the warm path must know of a project to see that it changed."""
        table = project.manifest.workspace
        self.name = project.name
        self.network = project.manifest.sandbox_network
        self.gpu = project.manifest.sandbox_gpu
        self.members = [os.path.relpath(m.path.parent, project.root) for m in project.members]
        self.workspace = {"members": list(table.members), "exclude": list(table.exclude)} if table else {}
        self.globs = [
            [os.path.relpath(m.path.parent, project.root), key] for m in project.manifests for key in m.cache_keys
        ]

    def save(self) -> None:
        self.recorded_at = time.time_ns()
        content = {name: value for name, value in vars(self).items() if name not in ("path", "root", "envs")}
        envs = {name: env.as_json() for name, env in self.envs.items()}
        written = {**content, "version": warm.VERSION, "root": os.fspath(self.root), "envs": envs}
        write_json(self.path, written, durable=False)


def record_path(home: Home, root: Path) -> Path:
    return home.refs / warm.record_name(os.fspath(root))


def load(home: Home, root: Path) -> ProjectRecord:
    """The record of the project at ``root``; an empty one if there is none that can be read."""
    path = record_path(home, root)
    raw = warm.read(os.fspath(path))
    try:
        if raw is None or raw["root"] != os.fspath(root):
            return ProjectRecord(path, root)
        envs: dict[str, Built] = {name: warm.TARGETS[name].from_json(env) for name, env in raw["envs"].items()}
        seen = {name: value for name, value in raw.items() if name not in ("version", "root", "envs")}
        return ProjectRecord(path, root, envs=envs, **seen)
    except (KeyError, TypeError, AttributeError):
        return ProjectRecord(path, root)  # a record is a cache: what cannot be read is made again


@dataclass(frozen=True)
class Situation:
    """What was found; :meth:`flags` answers for one target."""

    context: Context
    record: ProjectRecord
    inputs: str
    """One hash over everything that the lock and the choice of packages depend on."""
    lock_matches: bool
    moved: bool = False
    """Whether files that the record knows are others now, even if they say the same."""

    @property
    def project(self) -> Project:
        return self.context.project

    def built(self, target: Target) -> Built | None:
        return self.record.envs.get(target.value)

    def selection(self, target: Target) -> Selection:
        """What the env of this target was last built with; uv's defaults if it never was."""
        built = self.built(target)
        return Selection.from_json(built.selection) if built else Selection()

    def made_from(self, target: Target) -> dict[str, str]:
        """What an env of this target is made from, as it is now."""
        return parts_of(self.record.parts, target.value)

    def flags(self, target: Target, selection: Selection | None = None) -> Flags:
        built = self.built(target)
        wanted = selection or self.selection(target)
        exists = built is not None and built.whole and not damaged(self.context.store, built)
        stale = "" if built is None else self._stale(target, built, wanted) if exists else _DAMAGED
        return Flags(
            workspace=self.project.is_workspace,
            manifest_exists=True,
            lock_exists=self.project.lock.is_file(),
            lock_matches=self.lock_matches,
            env_exists=exists,
            env_matches=exists and not stale,
            stale=stale,
            pylock=self.project.uses_pylock,
        )

    def _stale(self, target: Target, built: Built, wanted: Selection) -> str:
        """What changed since the env was built; nothing if it would be built the same."""
        now = self.made_from(target)
        changed = sorted(name for name in now.keys() | built.inputs.keys() if now.get(name) != built.inputs.get(name))
        if changed:
            return f"{' and '.join(changed)} changed after the env was built."
        if built.made_by != __version__:
            return f"The env was built by px {built.made_by}, and this is px {__version__}."
        if not made_alike(built, self.record.recorded_at):
            return "px's own tables of bases and capabilities changed after the env was built."
        if built.selection != wanted.as_json():
            return "The env was built with other groups, extras or Python."
        return ""


_DAMAGED = "The env was removed, or is damaged."


def damaged(store: Store, built: Built) -> list[str]:
    """The image's manifest and those of its layers that are not what was built, if anything touched them.

    Layers are read in full, which takes seconds, so only those that are not the directories that px knows.
    """
    if not isinstance(built, BuiltSandbox) or built.untouched:
        return []
    found = [] if _manifest_fits(built) else [os.path.join(built.directory, "manifest.json")]
    for layer in built.layers:
        kind, oid = layer.split(os.sep)[-3:-1]
        if warm.mark(layer) != built.marks.get(layer) and store.problems(kind, oid):
            found.append(layer)
    return found


def _manifest_fits(built: BuiltSandbox) -> bool:
    try:
        raw = json.loads(Path(built.directory, "manifest.json").read_bytes())
        return bool(raw["sbx_id"] == built.sbx_id and set(raw["objects"]) <= set(built.objects))
    except (OSError, ValueError, KeyError, TypeError):
        return False


# What uv has said yes to in this process: commands look a second time once they hold the project's lock.
_MATCHED: set[tuple[str, str]] = set()
NOTHING = Flags(
    workspace=False, manifest_exists=False, lock_exists=False, lock_matches=False, env_exists=False, env_matches=False
)


def inspect(context: Context) -> Situation:
    """Look at everything; uv is asked about the lock only when the files changed since it last said yes."""
    return checked(glance(context))


def glance(context: Context) -> Situation:
    """As :func:`inspect`, but without uv: the lock matches if px knows it, and perhaps otherwise too."""
    project = context.project
    record = load(context.home, project.root)
    moved = record.look(project)
    inputs = digest(record.parts)
    return Situation(context, record, inputs, record.locked == inputs, moved)


def checked(found: Situation) -> Situation:
    """The same, with uv's word on the lock where px does not know it."""
    asked = (os.fspath(found.project.root), found.inputs)
    if not (found.lock_matches or asked in _MATCHED or locks.matches_manifest(found.context)):
        return found
    found.record.locked = found.inputs
    _MATCHED.add(asked)
    return replace(found, lock_matches=True)


def remember(situation: Situation, target: Target, built: Built) -> None:
    """Save that ``built`` is the env of this project, and point the project's link at it."""
    record, project = situation.record, situation.project
    record.describe(project)
    record.locked = situation.inputs
    record.envs[target.value] = built
    record.save()
    # A member that was a project of its own before must not be found as one on the warm path.
    for member in project.members:
        record.path.with_name(record_name(os.fspath(member.path.parent))).unlink(missing_ok=True)
    if target is Target.HOST:
        link(project.root, built.directory)


def link(root: Path, env: str) -> None:
    """``.px/envs/current`` points at the host env; a read-only working tree goes without.

    A target may have written there, so nothing on the way is followed if it is a link.
    """
    try:
        with foreign.folder(root, STATE, make=True) as state, foreign.folder(state, "envs", make=True) as envs:
            _ignore(state)
            if _points_at(envs) != env:
                temporary = f".current.{os.getpid()}"
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=envs)
                os.symlink(env, temporary, dir_fd=envs)
                os.replace(temporary, "current", src_dir_fd=envs, dst_dir_fd=envs)
    except PxError as e:
        console.warn(f"{e.what} The env is at {env}")
    except OSError as e:
        console.detail(f"{root / STATE} cannot be written ({e.strerror}); the env is at {env}")


def _points_at(envs: int) -> str | None:
    try:
        return os.readlink("current", dir_fd=envs)
    except OSError:
        return None


def _ignore(state: int) -> None:
    """Keep git away from it, without touching a file that is there."""
    with suppress(FileExistsError):
        fd = os.open(".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=state)
        with os.fdopen(fd, "w") as f:
            f.write("*\n")
