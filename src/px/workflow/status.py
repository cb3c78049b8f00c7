"""What ``px status`` tells: state, lock, env, runtime, warnings and the next action, for both targets."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px.debian.locking.pins import read_pins
from px.platforms import host_architecture
from px.project import state as rules
from px.project.discovery import POETRY, find_manifest, no_table, try_discover
from px.project.situation import NOTHING
from px.project.state import Target
from px.sandbox.layers.base import load_base_lock
from px.sandbox.manifest import read_manifest
from px.warm.record import BuiltSandbox
from px.workflow.door import look

if TYPE_CHECKING:
    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.situation import Situation
    from px.project.state import Flags
    from px.sandbox.manifest import SandboxManifest
    from px.warm.record import Built


@dataclass(frozen=True)
class TargetStatus:
    """One target: how far it is, and what leads on."""

    state: str
    reason: str
    env: str | None
    profile_oid: str | None
    python: str | None
    selection: dict[str, Any]
    next_action: str


@dataclass(frozen=True)
class Status:
    """A project as a person wants to see it."""

    directory: Path
    name: str | None
    root: Path | None
    version: str | None
    requires_python: str | None
    workspace: bool
    members: tuple[str, ...]
    lock: str | None
    lock_state: str
    groups: tuple[str, ...]
    extras: tuple[str, ...]
    host: TargetStatus
    sandbox: TargetStatus
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    """What is committed and does not agree: what `px status --check` fails for."""

    def as_json(self) -> dict[str, Any]:
        def plain(target: TargetStatus) -> dict[str, Any]:
            return dict(vars(target))

        found = dict(vars(self)) | {"host": plain(self.host), "sandbox": plain(self.sandbox)}
        return {k: str(v) if isinstance(v, Path) else list(v) if isinstance(v, tuple) else v for k, v in found.items()}


def gather(context: Context) -> Status:
    directory, frozen = context.directory, context.frozen_by is not None
    if try_discover(directory) is None:
        manifest = find_manifest(directory)
        reason = f"{manifest} has no [project] table." if manifest else NOTHING.reason
        remedy = f"Write a [project] table into {manifest}" if manifest else rules.remedy(NOTHING.state, frozen=frozen)
        if manifest and POETRY in no_table(manifest).fix:
            remedy = POETRY
        nothing = TargetStatus(NOTHING.state.value, reason, None, None, None, {}, remedy)
        none = Status(directory, None, None, None, None, False, (), None, "missing", (), (), nothing, nothing, (), ())
        return replace(none, problems=(reason,))
    project = context.project
    sandbox = check_sandbox(project)
    situation = look(context)
    flags = situation.flags(Target.HOST)
    lock_state = (
        "missing" if not flags.lock_exists else "up to date" if flags.lock_matches else "older than the manifest"
    )
    return Status(
        directory=directory,
        name=project.name,
        root=project.root,
        version=project.here.version,
        requires_python=project.manifest.requires_python,
        workspace=project.is_workspace,
        members=tuple(m.name or m.path.parent.name for m in project.members),
        lock=project.lock.name if flags.lock_exists else None,
        lock_state=lock_state,
        groups=tuple(sorted({name for m in project.manifests for name in m.groups})),
        extras=tuple(sorted({name for m in project.manifests for name in m.extras})),
        host=_target(situation, Target.HOST, frozen=frozen),
        sandbox=_target(situation, Target.SANDBOX, frozen=frozen),
        warnings=tuple(_warnings(project)),
        problems=(*_stale_lock(flags, lock_state), *_stale_pins(situation, sandbox)),
    )


def check_sandbox(project: Project) -> SandboxManifest:
    """Refuse a ``[tool.px.sandbox]`` that no command could use: better said here than at the first run."""
    manifest = read_manifest(project.manifest.path, project.manifest.document)
    if not manifest.base_is_default:
        load_base_lock(manifest.base, host_architecture())
    return manifest


def _stale_lock(flags: Flags, lock_state: str) -> list[str]:
    if flags.lock_exists and flags.lock_matches:
        return []
    return [f"The lock is {lock_state}. {rules.remedy(flags.state, pylock=flags.pylock)}"]


def _stale_pins(situation: Situation, manifest: SandboxManifest) -> list[str]:
    """What the project's own pins lack of what the manifest names, or of what the last sandbox was found to need."""
    if manifest.pins is None:
        return []
    if not manifest.pins.is_file():
        return [f"{manifest.pins} does not exist. Run 'px sandbox pin'."]
    built = situation.built(Target.SANDBOX) if situation.flags(Target.SANDBOX).env_exists else None
    used = manifest.enabled | set(built.capabilities if isinstance(built, BuiltSandbox) else ())
    problems = []
    for architecture, lock in read_pins(manifest.pins).items():
        missing = sorted(used - lock.capabilities.keys())
        if lock.name != manifest.base:
            problems.append(f"{manifest.pins} pins {lock.name}, and the project's base is {manifest.base}.")
        elif missing:
            lacks = f"{manifest.pins} has no pins of {', '.join(missing)} for {architecture}."
            problems.append(f"{lacks} Run 'px sandbox pin'.")
    return problems


def _target(situation: Situation, target: Target, *, frozen: bool) -> TargetStatus:
    flags = situation.flags(target)
    built = situation.built(target) if flags.env_exists else None
    return TargetStatus(
        state=flags.state.value,
        reason=flags.reason,
        env=built.directory if built else None,
        profile_oid=built.profile_oid if built else None,
        python=_runtime(built),
        selection=situation.selection(target).as_json(),
        next_action=rules.remedy(flags.state, target=target, frozen=frozen, pylock=flags.pylock),
    )


def _runtime(built: Built | None) -> str | None:
    if isinstance(built, BuiltSandbox):
        with_them = f" with {', '.join(built.capabilities)}" if built.capabilities else ""
        return f"{built.python} of {built.base}{with_them}"
    return _python(built.directory) if built else None


def _python(env: str) -> str | None:
    try:
        text = Path(env, "pyvenv.cfg").read_text(encoding="utf-8")
        marker = json.loads(Path(env, "px-env.json").read_bytes())
    except (OSError, ValueError):
        return None
    version = next((line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("version")), "")
    return f"CPython {version} ({marker['python']})"


def _warnings(project: Project) -> list[str]:
    found = []
    if project.is_workspace:
        found += [
            f"{m.path}: [tool.px.sandbox] is ignored here; the workspace root's is used ({project.manifest.path})"
            for m in project.members
            if "sandbox" in m.tool("px")
        ]
    if project.uses_pylock:
        found.append("pylock.toml is read, never written: px add, remove and update need a uv.lock")
    return found
