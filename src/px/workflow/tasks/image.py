"""The image of a project's tasks: packed from the commit that is checked out, and pushed once.

``px run --sandbox`` and these tasks stand on the same sandbox, so the image has the packages that were synced for it,
development groups included, and the same ``sbx_id``.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from px.errors import PxError
from px.oci.blobs import Blobs
from px.oci.registry.client import Registry
from px.oci.registry.push import has_release, reported
from px.oci.registry.reference import Reference, default_reference, parse
from px.platforms import architectures_named
from px.process import tidy_end
from px.project.situation import inspect
from px.project.state import Target
from px.store.locks import locked
from px.workflow.door import exclusive, serving
from px.workflow.pack import Delivery, PackOptions, check_clean, deliver, pack_all
from px.workflow.tasks.packages import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.workflow.pack import PackedRelease


@dataclass(frozen=True)
class Wanted:
    """What the configuration says about images of tasks."""

    registry: str
    """``HOST`` or ``HOST/PATH``; the project's repository lies below it."""
    datastore: str = "s3"
    platform: str = ""
    """The cluster's, such as ``linux/arm64``, or several by commas; empty for this machine's."""
    insecure: bool = False
    allow_dirty: bool = False
    apt: bool = False
    """Whether apt shall find what is installed in it, to install more."""
    code: bool = True
    """Whether the working tree shall be in it.  If the project's own modules are installed in its env, it always is."""


@dataclass(frozen=True)
class TaskImage:
    """An image that is in the registry."""

    reference: str
    """``REGISTRY/NAME@sha256:…``"""
    sbx_id: str
    sent: int
    """How many blobs were sent for it now: none if the registry had it all."""
    sent_bytes: int = 0


@dataclass(frozen=True)
class Checked:
    """An image that can be packed and pushed, as far as that can be known before."""

    context: Context
    wanted: Wanted
    options: PackOptions
    architectures: list[str]
    repository: Reference
    registry: Registry


def check_task_image(context: Context, wanted: Wanted) -> Checked:
    """Say what can be known to fail before anything is packed: the name, the lock, the working tree, the registry."""
    tasks, repository = Tasks(wanted.datastore, apt=wanted.apt), repository_of(context, wanted.registry)
    architectures = architectures_named(wanted.platform, "METAFLOW_SANDBOX_PLATFORM=")
    if context.offline:
        problem = f"a push to {repository.host} needs the network, and uv is told to be offline"
        raise PxError("PX903", problem=problem, fix=["Allow it: unset UV_OFFLINE"], whole_fix=True)
    _matched(context)
    code = wanted.code or _has_modules(context.project)
    clean = code and check_clean(context.project, allow_dirty=wanted.allow_dirty)
    registry = _reached(repository, insecure=wanted.insecure)
    options = PackOptions(tasks=tasks, clean=clean, entrypoint=(), code=code)
    return Checked(context, wanted, options, architectures, repository, registry)


def task_image(checked: Checked) -> TaskImage:
    """Pack the project's image for tasks, and push it unless the registry has it."""
    context = checked.context
    with tidy_end(), _one_at_a_time(context):
        packed = _packed(context, checked.options, checked.architectures)
        if checked.options.code and not checked.wanted.allow_dirty:  # a file that was saved meanwhile may be in it
            check_clean(context.project, allow_dirty=False, warn=False)
        return _pushed(checked, packed)


def _has_modules(project: Project) -> bool:
    """Whether the env has modules of the working tree: the project's own, a workspace's, or those beside it."""
    return project.here.is_package or len(project.manifests) > 1 or bool(project.beside)


def repository_of(context: Context, registry: str) -> Reference:
    """Where the project's images go: a repository of the project's name below what the configuration names."""
    name = default_reference(context.project.name, None, None).path
    if "@" in registry:  # it is not shown: what stands before it is a login
        problem, registry = "a login is no part of the name", registry.rpartition("@")[2]
        fix = ["Log in, and name the registry without it: docker login " + registry.partition("/")[0]]
        raise PxError("PX922", reference=registry, problem=problem, fix=fix, whole_fix=True)
    try:
        found = parse(f"{registry.strip().rstrip('/')}/{name}")
        problem = "px.local is px's name for this machine, not a registry" if found.is_local else ""
    except PxError as e:
        problem = str(e.fields["problem"])
    if problem:
        fix = ["Name it as HOST or HOST/PATH: METAFLOW_SANDBOX_REGISTRY=registry.example.org/team"]
        raise PxError("PX922", reference=registry, problem=problem, fix=fix, whole_fix=True)
    return replace(found, tag="")


def _reached(repository: Reference, *, insecure: bool) -> Registry:
    """The registry, which answers and knows us: better asked now than after minutes of packing."""
    registry = Registry(repository, insecure=insecure)
    with reported(registry, f"asking {repository.host} for {repository.path}", packed=False):
        registry.connect()
        registry.has_blob("sha256:" + "0" * 64)
    return registry


@contextmanager
def _one_at_a_time(context: Context) -> Iterator[None]:
    """Two runs that start together push one image once: the second finds it there."""
    name = re.sub(r"[^a-z0-9]+", "-", str(context.root).lower())[-80:]
    with locked(context.home.locks / f"tasks-{name}", "Waiting for another run that pushes the project's image"):
        yield


def _matched(context: Context) -> Situation:
    """The project, if its lock can be packed."""
    situation = inspect(serving(context, Target.SANDBOX))
    if not context.project.lock.is_file():
        reason = "The image of tasks is made from a lock."
        remedy = "Make one: px sync --sandbox, then commit it."
        raise PxError(
            "PX010", command="pack image", sentence="there is no lock", state="NeedsLock", reason=reason, remedy=remedy
        )
    if not situation.lock_matches:
        reason = "The image of tasks is made from a lock that matches the manifest."
        raise PxError("PX102", lock=context.project.lock.name, reason=reason)
    return situation


def _packed(context: Context, options: PackOptions, architectures: list[str]) -> PackedRelease:
    situation = _matched(context)
    with exclusive(context):
        return pack_all(situation, _synced(situation.selection(Target.SANDBOX)), options, architectures)


def _synced(selection: Selection) -> Selection:
    """What ``px run --sandbox`` has; a path to a Python is one machine's, and stands for no version."""
    version = selection.python if selection.python and re.fullmatch(r"[0-9.]+", selection.python) else None
    return replace(selection, python=version)


def _pushed(checked: Checked, packed: PackedRelease) -> TaskImage:
    context, repository, registry = checked.context, checked.repository, checked.registry
    digest, sbx_id = packed.release.digest, packed.images[0].steps.image.sbx_id
    reference = str(replace(repository, digest=digest))
    # Under a tag of its own: registries remove what has none, and a scheduled flow may want it for months.
    tag = f"px-{digest.removeprefix('sha256:')[:16]}"
    with reported(registry, f"asking {repository.host} for {repository.path}"):
        if has_release(Blobs(context.home), packed.release, registry, tag):
            return TaskImage(reference, sbx_id, 0)
    named = replace(packed, names=(replace(repository, tag=tag),))
    (done,) = deliver(context, named, Delivery(push=True, insecure=checked.wanted.insecure))
    return TaskImage(reference, sbx_id, len(done.sent), done.sent_bytes)
