"""A capability more: only its own packages are unpacked, and the layer is what it would have been anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.home import Home
from px.sandbox.layers.base import ensure_base
from px.sandbox.layers.system import ensure_system_layer
from px.store.objects import Store
from px.store.tree import remove_tree
from tests.integration.sandbox.homes import clone

if TYPE_CHECKING:
    from pathlib import Path

    from px.sandbox.layers.base import Base

pytestmark = pytest.mark.network


def test_only_what_is_new_is_unpacked(
    bookworm: Base, warm_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = {}
    for name, steps in {"grown": (["postgres"], ["less", "postgres"]), "at once": (["less", "postgres"],)}.items():
        home = clone(warm_store.home, Home(tmp_path / name), ("source", "sandbox-base"))
        store = Store(home)
        base = ensure_base(store, bookworm.lock)
        capsys.readouterr()
        for capabilities in steps:
            said = capsys.readouterr().err
            layers[name] = ensure_system_layer(store, base, capabilities)
        said = capsys.readouterr().err
        assert ("Unpacking 1 Debian package:" in said) == (name == "grown")
        remove_tree(home.root)
    assert layers["grown"] == layers["at once"]
