"""A browser, and a repository with two commits of a project that needs the system."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from tests.support.chromium import Chromium, chromium
from tests.support.needs import need
from tests.support.px import UV

SHOP = """\
[project]
name = "shop"
version = "0.1"
requires-python = ">=3.11"
dependencies = [{dependencies}]
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    need("Chromium")
    with chromium() as found:
        found.look()
        yield found


@pytest.fixture
def warm(warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """px with a home that has the bases already."""
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    return warm_home


def git(root: Path, *args: str) -> str:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    done = subprocess.run(["git", *identity, *args], cwd=root, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pillow and an older numpy first; then psycopg2, which has no wheel, and a newer numpy."""
    need("git")
    root = tmp_path_factory.mktemp("pages") / "shop"
    root.mkdir()
    git(root, "init", "-q")
    (root / ".gitignore").write_text(".px\n")
    for message, dependencies in (
        ("Pictures", '"pillow==11.0.0", "numpy==1.26.4"'),
        ("A database", '"pillow==11.0.0", "numpy==2.1.3", "psycopg2==2.9.10"'),
    ):
        (root / "pyproject.toml").write_text(SHOP.format(dependencies=dependencies))
        subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True, capture_output=True, timeout=120)
        git(root, "add", "-A")
        git(root, "commit", "-qm", message)
    return root
