"""Profiles: the identity of an env, for one target, from one lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.store.canonical import oid_of

if TYPE_CHECKING:
    from px.env.packages import Package
    from px.env.runtime import Runtime
    from px.store.objects import Payload, Store

LAYOUT = 1


@dataclass(frozen=True)
class Editable:
    """A project of the workspace that is installed in place: only where it lies, relative to the root."""

    name: str
    path: str


@dataclass(frozen=True)
class Profile:
    """Runtime, packages, variables and order of import; equal on every machine that has the same lock."""

    runtime: Runtime
    packages: tuple[Package, ...]
    editables: tuple[Editable, ...]
    variables: tuple[tuple[str, str], ...]
    runtime_payload: Payload | None = None
    """What stands for the runtime in the id, where it is more than :meth:`Runtime.payload` (a tree of its own)."""

    def _runtime(self) -> Payload:
        return self.runtime_payload or self.runtime.payload()

    def payload(self) -> Payload:
        return {
            "layout": LAYOUT,
            "runtime": oid_of("runtime", self._runtime()),
            "packages": [[p.name, p.version, p.oid] for p in sorted(self.packages, key=lambda p: p.name)],
            "editables": [[e.name, e.path] for e in sorted(self.editables, key=lambda e: e.name)],
            "env": dict(sorted(self.variables)),
            "sys_path": [self.runtime.site_packages],
        }

    @property
    def oid(self) -> str:
        return oid_of("profile", self.payload())

    @property
    def refs(self) -> tuple[str, ...]:
        runtime = oid_of("runtime", self._runtime())
        return (f"runtime/{runtime}", *(f"pkg-build/{p.oid}" for p in self.packages))

    def save(self, store: Store) -> str:
        """Put the runtime and the profile into the store; returns the profile's oid."""
        store.put("runtime", self._runtime())
        return store.put("profile", self.payload(), refs=self.refs)
