"""Unit tests have no network: a test that needs one belongs to tests/integration."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.offline import no_network

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """All of a unit test, its fixtures too; pytest calls this for the other tests of the run as well."""
    if not item.path.is_relative_to(HERE):
        return (yield)
    with no_network():
        return (yield)
