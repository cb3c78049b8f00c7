"""Real bases, in a px home that keeps its downloads between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.platforms import host_architecture
from px.sandbox.layers.base import Base, ensure_base, ensure_bytecode_layer, load_base_lock
from px.sandbox.layers.layer import Layer
from px.store.objects import Store

if TYPE_CHECKING:
    from px.home import Home


@pytest.fixture(scope="session")
def warm_store(warm_home: Home) -> Store:
    return Store(warm_home)


@pytest.fixture(scope="session", params=["debian-12", "debian-13"])
def base(request: pytest.FixtureRequest, warm_store: Store) -> Base:
    """Both bases, for this machine's architecture."""
    return ensure_base(warm_store, load_base_lock(request.param, host_architecture()))


@pytest.fixture(scope="session")
def bookworm(warm_store: Store) -> Base:
    return ensure_base(warm_store, load_base_lock("debian-12", host_architecture()))


@pytest.fixture(scope="session")
def bytecode(base: Base, warm_store: Store) -> Layer:
    return ensure_bytecode_layer(warm_store, base)
