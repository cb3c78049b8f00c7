"""Projects and homes for the tests of ``px run --sandbox`` and its relatives."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from px.store.locks import locked
from px.store.tree import remove_tree
from tests.integration.sandbox.homes import DOWNLOADS, clone
from tests.integration.sandbox.native import make_sdist, write_project
from tests.support.needs import need
from tests.support.px import run_px
from tests.support.users import another_user

UV = Path(sys.executable).parent / "uv"
DATABASE = """\
[project]
name = "database"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["psycopg2==2.9.10", "pillow"]
"""
PLAIN = """\
[project]
name = "plain-project"
version = "1.2.3"
requires-python = ">=3.11"

[project.scripts]
plain-cli = "plain_project:main"

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.px.env]
MODE = "tested"
"""
MODULE = "def main():\n    print('one')\n    return 7\n"


def lock(root: Path) -> Path:
    subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True, capture_output=True, timeout=120)
    return root


@pytest.fixture(scope="session")
def locked_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("locked") / "database"
    root.mkdir()
    (root / "pyproject.toml").write_text(DATABASE)
    return lock(root)


@pytest.fixture(scope="session")
def seed(warm_home: Home, locked_database: Path) -> Home:
    """A home of these tests' own that outlives the run and has the database project's sandbox."""
    need("bubblewrap")
    home = Home(warm_home.root / "tests" / "sandbox" / "home")
    with locked(home.root.parent / "lock"):
        if not home.objects.is_dir() and warm_home.objects.is_dir():
            clone(warm_home, home, DOWNLOADS)
        run_px("sync", "--sandbox", cwd=locked_database, PX_HOME=str(home.root), timeout=600)
    return home


@pytest.fixture
def warm(seed: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The shared home, for tests that neither damage it nor count what is in it."""
    monkeypatch.setenv("PX_HOME", str(seed.root))
    return seed


@pytest.fixture
def own(seed: Home, home: Home) -> Iterator[Home]:
    """A home of the test's own in which everything is built, to be damaged and counted."""
    yield clone(seed, home)
    remove_tree(home.root)


@pytest.fixture(scope="session")
def _alone(seed: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = clone(seed, Home(tmp_path_factory.mktemp("alone") / "px-home"))
    yield home
    remove_tree(home.root)


@pytest.fixture
def alone(_alone: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home that no other process uses while the test runs, for tests that look at what remains in it."""
    monkeypatch.setenv("PX_HOME", str(_alone.root))
    return _alone


@pytest.fixture
def cold(seed: Home, home: Home) -> Iterator[Home]:
    """A home that has the downloads and nothing else."""
    yield clone(seed, home, DOWNLOADS)
    remove_tree(home.root)


@pytest.fixture
def database(locked_database: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(locked_database, tmp_path / "database", ignore=shutil.ignore_patterns(".px")))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A project of one module, without dependencies."""
    return make_plain(tmp_path / "plain")


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A project whose one dependency has to be compiled, which takes a second."""
    return lock(write_project(tmp_path / "uses-native", make_sdist(tmp_path / "sdists", "answer42")))


def make_plain(root: Path) -> Path:
    (root / "src/plain_project").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PLAIN)
    (root / "src/plain_project/__init__.py").write_text(MODULE)
    return lock(root)


@pytest.fixture
def private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files that only this test's processes use."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def ordinary() -> int:
    """The uid of a user who is not root."""
    return another_user()
