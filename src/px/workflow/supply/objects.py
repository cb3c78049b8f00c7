"""Which objects a project's sandbox and image consist of, as another machine asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.oci.objects import KINDS, ObjectName
from px.project.state import Target
from px.workflow.pack import production
from px.workflow.sandbox import take_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.store.objects import Store


def collect(
    situation: Situation, architectures: Sequence[str], chosen: Sequence[Selection] = ()
) -> dict[ObjectName, str]:
    """Build what is missing, and return every object with its oid: those of the sandbox, and those of the image."""
    store = situation.context.store
    for _ in range(2):
        # The second time everything is there.  Then px asks for what a machine with these objects will ask for, and
        # not for what they were made from, such as compilers.
        store.used.clear()
        for selection in chosen or selections(situation):
            for architecture in architectures:
                take_steps(situation, selection, architecture=architecture)
    found = {ObjectName(kind, key): oid for (kind, key), oid in store.used.items() if kind in KINDS}
    return {name: found[name] for name in sorted(found) if not _derived(store, name.kind, found[name])}


def selections(situation: Situation) -> list[Selection]:
    """What the sandbox was synced with, and what goes into an image."""
    own = situation.selection(Target.SANDBOX)
    return list(dict.fromkeys([own, production(situation.project, own, None)]))


def _derived(store: Store, kind: str, oid: str) -> bool:
    """Whether it consists of other objects' files: then it is made again by links, faster than it travels."""
    what = str(store.payload(kind, oid).get("what", ""))
    return kind == "layer" and (what == "env" or what.startswith("package "))
