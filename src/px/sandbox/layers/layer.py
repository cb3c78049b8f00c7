"""A layer: one tree of a root file system, as an object of the store.

Layers only add or replace files, so a root file system is its trees on top of each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from px.debian.image import Below
from px.sandbox.needs.merged import Contents
from px.store.objects import tree_spec

if TYPE_CHECKING:
    from pathlib import Path

    from px.debian.lock import PinnedPackage
    from px.store.objects import Store
    from px.store.tree import Entry


@dataclass(frozen=True)
class Layer:
    """One tree that is in the store."""

    oid: str
    kind: str
    what: str
    """What it brings: ``base``, ``bytecode``, ``system``, ``runtime``, ``package NAME``, ``env``, ``project`` …"""
    tree: Path = field(compare=False)
    packages: tuple[PinnedPackage, ...] = field(default=(), repr=False)
    """The packages of the distribution that it is made of."""

    @classmethod
    def of(cls, store: Store, oid: str, what: str, packages: tuple[PinnedPackage, ...] = ()) -> Layer:
        return cls(oid, "layer", what, store.tree("layer", oid), packages)

    @property
    def ref(self) -> str:
        return f"{self.kind}/{self.oid}"

    def entries(self, store: Store) -> list[Entry]:
        return tree_spec(store.payload(self.kind, self.oid))

    def below(self, store: Store) -> Below:
        """As what is made on top of it sees it."""
        return Below(self.tree, self.entries(store))

    def contents(self, store: Store) -> Contents:
        """As the link check sees it."""
        return Contents(self.tree, self.entries(store), self.oid)
