"""``--auto-add``: adding the capability that an error asks for, and trying again.

A run, a test or a packed image gets it for this one time.  ``px sync`` writes it into the manifest, as
``px sandbox add`` does, because what it builds is what later commands use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from px import console
from px.errors import PxError
from px.sandbox.edit import set_capabilities
from px.sandbox.manifest import governing_manifest
from px.workflow.door import ensure, restoring

if TYPE_CHECKING:
    from collections.abc import Callable

    from px.project.context import Context
    from px.warm.record import Built
    from px.workflow.door import Ready, Wish

T = TypeVar("T")


def wanted(error: PxError) -> frozenset[str]:
    """The capabilities that an error asks for."""
    names = error.fields.get("capabilities", []) if error.code == "PX902" else []
    return frozenset(names) if isinstance(names, list | tuple) else frozenset()


def may_add(context: Context, error: PxError, added: frozenset[str]) -> bool:
    """Never when frozen, nor against the manifest, and not the same capability twice."""
    if not wanted(error) - added:
        return False
    if context.frozen_by is not None:
        console.warn(f"--auto-add does nothing here: {context.frozen_by} is set")
        return False
    manifest = governing_manifest(context.project.manifest.path)[0]
    refused = [f"[tool.px.sandbox.capabilities].{name}" for name in sorted(manifest.disabled & wanted(error))]
    refused += [] if manifest.auto else ["[tool.px.sandbox].auto"]
    if refused:
        console.warn(f"--auto-add does nothing here: {refused[0]} is false")
    return not refused


def adding(context: Context, work: Callable[[frozenset[str]], T]) -> T:
    """Do some work, again with every capability that it turns out to lack."""
    more: frozenset[str] = frozenset()
    while True:
        try:
            return work(more)
        except PxError as e:
            if not may_add(context, e, more):
                raise
            more |= wanted(e)
            console.info(f"Adding {', '.join(sorted(more))} for this time (px sandbox add keeps it) …")


def sync(context: Context, wish: Wish) -> Ready[Built]:
    """Bring the project to Consistent, with every capability that it turns out to lack in its manifest."""
    manifest, added = context.project.manifest.path, frozenset[str]()
    with restoring([manifest]):
        while True:
            try:
                return ensure(context, wish)
            except PxError as e:
                if not may_add(context, e, added):
                    raise
                added |= wanted(e)
                names = set_capabilities(manifest, sorted(added), enabled=True)
                console.info(f"Added to {manifest.name}: {', '.join(names)} (--auto-add)")
                context = context.look_again()
