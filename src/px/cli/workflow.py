"""What the commands have in common: look, ask the table what is allowed, lock, build, remember."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.project import lock as locks
from px.project import rules
from px.project.discovery import Project, discover
from px.project.fingerprint import record_name
from px.project.situation import Situation, inspect, link, remember
from px.project.state import State, Target
from px.project.transaction import restoring
from px.store.files import disk_errors
from px.store.locks import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from px.cli.context import Context
    from px.project.record import BuiltEnv
    from px.project.selection import Selection


LARGEST_LOG = 1_000_000


@dataclass(frozen=True)
class Ready:
    """A project whose env is what its lock says."""

    project: Project
    built: BuiltEnv
    changed: bool
    """Whether anything had to be locked or built."""


def ensure_env(
    context: Context,
    command: str,
    target: Target = Target.HOST,
    *,
    selection: Selection | None = None,
    force: bool = False,
    more: frozenset[str] = frozenset(),
) -> Ready:
    """Bring the project to Consistent as far as ``command`` may, or refuse with what to do instead."""
    rules.check_frozen(command, context.frozen_by)
    project = discover(context.directory)
    situation = inspect(context.home, project, offline=context.offline)
    flags = situation.flags(target, selection)
    allowed = rules.permit(command, flags, frozen_by=context.frozen_by, target=target)
    built = situation.built(target)
    if more:
        # Capabilities for this run only: another image, which the project's record does not know.
        with exclusive(context, project.root):
            chosen = selection or situation.selection(target)
            return Ready(project, build_target(context, situation, target, chosen, more=more), changed=True)
    if not allowed.must_build and not force and built is not None:
        if target is Target.HOST:
            link(project.root, built.env)  # it may have been removed, or be another PX_HOME's
        return Ready(project, built, changed=False)
    with exclusive(context, project.root, log=target is Target.SANDBOX):
        if allowed.must_lock:
            with restoring([project.lock]):
                return _lock_and_build(context, project, target, selection, force=force)
        return _build(context, inspect(context.home, project, offline=context.offline), target, selection, force=force)


def _lock_and_build(
    context: Context, project: Project, target: Target, selection: Selection | None, *, force: bool
) -> Ready:
    locks.relock(project, offline=context.offline)
    console.info(f"Locked {project.lock.name}")
    situation = inspect(context.home, discover(context.directory), offline=context.offline)
    return _build(context, situation, target, selection, force=force)


def _build(
    context: Context, situation: Situation, target: Target, selection: Selection | None, *, force: bool
) -> Ready:
    chosen = selection or situation.selection(target)
    if situation.flags(target, chosen).state.plain is State.CONSISTENT and not force:
        built = situation.built(target)  # another px built it while this one waited
        if built is not None:
            return Ready(situation.project, built, changed=False)
    built = build_target(context, situation, target, chosen, force=force)
    remember(situation, target, built)
    return Ready(situation.project, built, changed=True)


def build_target(
    context: Context,
    situation: Situation,
    target: Target,
    selection: Selection,
    *,
    force: bool = False,
    more: frozenset[str] = frozenset(),
) -> BuiltEnv:
    """Build the env of one target; the other one is not looked at."""
    if target is Target.HOST:
        from px.env.sync import build_host

        return build_host(context.store, situation, selection, offline=context.offline, force=force)
    from px.sandbox.sync import build_sandbox

    return build_sandbox(context.store, situation, selection, offline=context.offline, more=more)


def change(context: Context, command: str, action: Callable[[Project], None], target: Target) -> Ready:
    """Run a command that changes M or L, and end Consistent, or leave everything as it was."""
    rules.check_frozen(command, context.frozen_by)
    project = discover(context.directory)
    if project.uses_pylock:
        from px.errors import PxError

        raise PxError("PX105", command=command)
    # The rule allows every state that has a manifest, and there is one: no need to ask uv about the lock.
    files = [*(m.path for m in project.manifests), project.lock]
    with exclusive(context, project.root, log=target is Target.SANDBOX), restoring(files):
        action(project)
        situation = inspect(context.home, discover(context.directory), offline=context.offline)
        return _build(context, situation, target, None, force=False)


@contextmanager
def exclusive(context: Context, root: Path, *, log: bool = True) -> Iterator[None]:
    """One px at a time may lock or build a project, and garbage is not collected meanwhile."""
    name = record_name(os.fspath(root)).removesuffix(".json")
    if log:
        start_log(root)
    project, collecting = context.store.lock(f"project-{name}", "this project's env"), context.home.locks / "gc"
    with disk_errors(context.home.root), project, locked(collecting, shared=True):
        yield


def start_log(root: Path) -> None:
    """From now on, keep what is decided in the project's ``.px/logs``; a read-only project goes without."""
    logs = root / ".px" / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        ignore = root / ".px" / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        log = logs / "px.log"
        if log.exists() and log.stat().st_size > LARGEST_LOG:
            log.replace(log.with_suffix(".log.1"))
        console.settings.log = log
    except OSError:
        console.detail(f"{logs} cannot be written: nothing is logged")
