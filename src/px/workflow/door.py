"""The one door to what was built for a project: its env on this machine, or its sandbox.

A command asks for it by name and target.  The door looks at the project, asks the table of rules what the command may
do, locks and builds as far as that goes, and hands out an env that is complete, remembered, and held against garbage
collection.  Building a sandbox is logged.  ``px run``, ``test``, ``sync``, ``add`` and Metaflow all come through here.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from px import console
from px.errors import PxError
from px.platforms import host_architecture
from px.project import lock as locks
from px.project import state as rules
from px.project.situation import Situation, checked, damaged, glance, inspect, link, load, remember
from px.project.state import State, Target
from px.store.files import disk_errors, write_atomically
from px.store.locks import collection_off
from px.warm.hold import hold_across_exec, use_lock
from px.warm.record import Built, BuiltHost, BuiltSandbox, record_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from px.home import Home
    from px.project.context import Context
    from px.project.selection import Selection
    from px.project.uv import Uv

LARGEST_LOG = 1_000_000
B_co = TypeVar("B_co", bound=Built, covariant=True)


@dataclass(frozen=True)
class Ready(Generic[B_co]):
    """A project whose env is what its lock says."""

    context: Context
    built: B_co
    changed: bool
    """Whether anything had to be locked or built."""


@dataclass(frozen=True)
class Wish:
    """What a command asks for."""

    command: str
    target: Target
    selection: Selection | None = None
    """Groups and extras; None keeps what was chosen last."""
    force: bool = False
    """Build it even if it is there."""
    more: frozenset[str] = frozenset()
    """Capabilities for this run only: another sandbox, which the project's record does not know."""


def ensure_host(context: Context, command: str) -> Ready[BuiltHost]:
    return cast("Ready[BuiltHost]", ensure(context, Wish(command, Target.HOST)))


def ensure_sandbox(context: Context, command: str = "run", more: frozenset[str] = frozenset()) -> Ready[BuiltSandbox]:
    return cast("Ready[BuiltSandbox]", ensure(context, Wish(command, Target.SANDBOX, more=more)))


def ensure(context: Context, wish: Wish) -> Ready[Built]:
    """Bring the project to Consistent as far as the command may, or refuse with what to do instead."""
    context = serving(context, wish.target)
    rules.check_frozen(wish.command, context.frozen_by)
    seen = glance(context)
    _expect(seen, wish)
    situation = checked(seen)
    flags = situation.flags(wish.target, wish.selection)
    allowed = rules.permit(wish.command, flags, frozen_by=context.frozen_by, target=wish.target)
    if not allowed.must_build and (known := _known(situation, wish)) and not _record_is_old(situation, known):
        return _handed_out(context, known, changed=False)
    with exclusive(context, log=wish.target is Target.SANDBOX):
        if allowed.must_lock:
            with restoring([context.project.lock]):
                locks.relock(context)
            # From here on the lock stays: it is right, whatever becomes of the build.
            console.info(f"Locked {context.project.lock.name}")
        return _build(context.look_again(), wish)


def _expect(situation: Situation, wish: Wish) -> None:
    """Tell the shared cache what a new project will need.  uv needs the base first: all the rest comes with it."""
    if situation.context.store.remote is None:
        return
    if situation.built(wish.target) is None and situation.project.lock.is_file():
        from px.workflow.supply.remote import expect

        expect(situation, wish.selection or situation.selection(wish.target), host_architecture())


def change(context: Context, command: str, target: Target, action: Callable[[Context], object]) -> Ready[Built]:
    """Run a command that changes M or L, and end Consistent, or leave everything as it was."""
    context = serving(context, target)
    rules.check_frozen(command, context.frozen_by)
    project = context.project
    if project.uses_pylock:
        raise PxError("PX105", command=command)
    # The rule allows every state that has a manifest, and there is one: no need to ask uv about the lock.
    files = [*(m.path for m in project.manifests), project.lock]
    with exclusive(context, log=target is Target.SANDBOX), restoring(files):
        action(context)
        return _build(context.look_again(), Wish(command, target))


def _known(situation: Situation, wish: Wish) -> Built | None:
    """What the project's record has, if that will do."""
    found = situation.built(wish.target)
    return found if found is not None and found.whole and not wish.force and not wish.more else None


def _record_is_old(situation: Situation, known: Built) -> bool:
    """Whether the next warm run would find something that it must look at again, though it changes nothing."""
    return situation.moved or not known.untouched


def _build(context: Context, wish: Wish) -> Ready[Built]:
    """Build, unless another px did so while this one waited for the project's lock."""
    situation = inspect(context)
    chosen = wish.selection or situation.selection(wish.target)
    is_consistent = situation.flags(wish.target, chosen).state.plain is State.CONSISTENT
    if is_consistent and (known := _known(situation, wish)):
        if _record_is_old(situation, known):
            remember(situation, wish.target, known.marked() if isinstance(known, BuiltSandbox) else known)
        return _handed_out(context, known, changed=False)
    _discard_damage(situation, wish.target)
    made: Built
    # Only here: most commands find everything built, and need not wait for the import of what builds.
    if wish.target is Target.HOST:
        from px.env.host import build_host

        made = build_host(situation, chosen, force=wish.force)
    else:
        from px.workflow.sandbox import build_sandbox

        made = build_sandbox(situation, chosen, wish.more)
    if not wish.more:
        remember(situation, wish.target, made)
    return _handed_out(context, made, changed=True)


def _discard_damage(situation: Situation, target: Target) -> None:
    """Remove what is not what it was built as, so that it is made again: the store would go on using it."""
    store, built = situation.context.store, situation.built(target)
    for path in damaged(store, built) if built is not None else ():
        console.warn(f"{path} is not what px made there; making it again")
        if path.endswith("manifest.json"):
            Path(path).unlink(missing_ok=True)
        else:
            kind, oid = path.split(os.sep)[-3:-1]
            store.discard(kind, oid)


def _handed_out(context: Context, built: Built, *, changed: bool) -> Ready[Built]:
    if isinstance(built, BuiltHost):
        link(context.root, built.directory)  # it may have been removed, or be another PX_HOME's
    elif isinstance(built, BuiltSandbox) and not changed:
        console.detail(f"base: {built.base} (base_os_oid {built.base_os_oid[:12]}): in the store")
        console.detail(f"capabilities: {', '.join(built.capabilities) or 'none'}")
        console.detail(f"image {built.sbx_id[:12]}: in the store, all {len(built.layers)} layers; nothing was built")
    hold_across_exec(use_lock(built.directory))
    return Ready(context, built, changed)


def serving(context: Context, target: Target) -> Context:
    """The context for one target: uv that serves the sandbox runs in a sandbox, because locking may build packages."""
    if target is Target.HOST:
        return context
    if context.cache and not context.offline:
        from px.workflow.supply.remote import ask_cache  # a project without a cache needs no HTTP client

        ask_cache(context)
    return replace(context, make_uv=_uv_in_sandbox)


def _uv_in_sandbox(context: Context, directory: Path) -> Uv:
    from px.sandbox.uv import SandboxUv  # where nothing changed uv is not asked, and a target starts sooner

    return SandboxUv(directory, context.offline, context)


def look(context: Context) -> Situation:
    """The project as a command finds it that only reports; what was made for the sandbox is asked about there."""
    sandboxed = Target.SANDBOX.value in load(context.home, context.root).envs or b"[tool.px.sandbox" in (
        context.project.manifest.path.read_bytes()
    )
    return inspect(serving(context, Target.SANDBOX if sandboxed else Target.HOST))


@contextmanager
def permitted(context: Context, command: str) -> Iterator[Situation]:
    """The project as a command that builds nothing for it finds it, with its lock held; PX010 if that is not enough."""
    situation = inspect(serving(context, Target.SANDBOX))
    rules.permit(command, situation.flags(Target.SANDBOX), frozen_by=context.frozen_by, target=Target.SANDBOX)
    with exclusive(context):
        yield situation


@contextmanager
def exclusive(context: Context, *, log: bool = True) -> Iterator[None]:
    """One px at a time may lock or build a project, and garbage is not collected meanwhile."""
    name = record_name(os.fspath(context.root)).removesuffix(".json")
    _warn_of_root(context.root)
    if log:
        start_log(context.home, name)
    project = context.store.lock(f"project-{name}", "this project's env")
    with disk_errors(context.home.root), project, collection_off(context.home):
        yield


def _warn_of_root(root: Path) -> None:
    """Root in somebody else's tree: possible, and soon a nuisance to its owner."""
    owner = root.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        console.warn(
            f"{root} belongs to user {owner}, and px runs as root: what px writes there will be root's, and a sandbox "
            f"cannot write to it. To run px as its owner: sudo -u '#{owner}' px …"
        )


@contextmanager
def restoring(paths: Sequence[Path]) -> Iterator[None]:
    """Put the files back, byte for byte, if the block ends with an exception (Ctrl-C included)."""
    before = {path: (path.read_bytes(), path.stat().st_mode & 0o7777) if path.is_file() else None for path in paths}
    try:
        yield
    except BaseException:
        restored = [path.name for path, known in before.items() if _restore(path, known)]
        if restored:
            console.info(f"Nothing was changed: {' and '.join(restored)} as before.")
        raise


def _restore(path: Path, known: tuple[bytes, int] | None) -> bool:
    """Whether there was anything to put back."""
    if known is None:
        there = path.is_file()
        path.unlink(missing_ok=True)
        return there
    if path.is_file() and path.read_bytes() == known[0]:
        return False
    write_atomically(path, known[0], mode=known[1])
    return True


def start_log(home: Home, name: str) -> None:
    """From now on, keep what is decided in the project's log; a home that cannot be written goes without."""
    log = home.logs / f"{name}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LARGEST_LOG:
            log.replace(log.with_suffix(".log.1"))
        console.settings.log = log
    except OSError:
        console.detail(f"{log} cannot be written: nothing is logged")
