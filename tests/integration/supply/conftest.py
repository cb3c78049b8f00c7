"""A px home of these tests' own, in which the base of the tests' projects is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.home import Home
from px.store.locks import locked
from tests.integration.sandbox.conftest import lock
from tests.integration.sandbox.homes import DOWNLOADS, clone
from tests.support.needs import need

MANIFEST = """\
[project]
name = "app"
version = "0.1"
requires-python = ">=3.11"

[tool.px.sandbox.capabilities]
postgres = true
"""


@pytest.fixture(scope="session")
def kept(warm_home: Home) -> Home:
    """A home that outlives the run."""
    need("bubblewrap")
    home = Home(warm_home.root / "tests" / "supply" / "home")
    with locked(home.root.parent / "lock"):
        if not home.objects.is_dir() and warm_home.objects.is_dir():
            clone(warm_home, home, DOWNLOADS)
    return home


@pytest.fixture
def project(tmp_path: Path, kept: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without packages that uses PostgreSQL's library."""
    monkeypatch.setenv("PX_HOME", str(kept.root))
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text(MANIFEST)
    return lock(root)
