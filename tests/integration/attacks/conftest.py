"""The victims of the attacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.sandbox.conftest import locked_database, seed, warm  # noqa: F401 - fixtures

SECRET = "pa55w0rd-of-the-index"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of the host that nothing inside has any business with."""
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "notes.txt").write_text("mine\n")
    return directory


@pytest.fixture
def marker(victim: Path) -> Path:
    """A file that exists only if somebody ran something, or wrote something, on the host."""
    return victim / "pwned"
