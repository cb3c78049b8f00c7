"""One commit, one digest: whoever packs it, wherever, whenever, with whatever settings, from whichever store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.pack.projects import Project, make_project
from tests.integration.sandbox.homes import DOWNLOADS, clone
from tests.support.users import another_user, become

ENTRY = "import sys; from px.cli.main import run; sys.exit(run(sys.argv[1:]))"
MACHINES: dict[str, dict[str, Any]] = {
    "one": {"umask": 0o022, "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"},
    "two": {"umask": 0o077, "TZ": "Asia/Kathmandu", "LC_ALL": "POSIX", "PYTHONHASHSEED": "2", "optimise": True},
}
REAL = """\
[project]
name = "demo-app"
version = "1.2.3"
requires-python = ">=3.11"
dependencies = ["psycopg2>=2.9", "pillow", "requests"]

[project.scripts]
demo-app = "demo_app:main"

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Not pytest's own directory, which only its owner may enter."""
    directory = Path(tempfile.mkdtemp(prefix="px-pack-"))
    directory.chmod(0o755)
    yield directory
    remove_tree(directory)


def packed_by(settings: dict[str, Any], bundle: Path, directory: Path, home: Home, uid: int) -> dict[str, Any]:
    """Clone, sync and pack as another user with other settings; the details that px printed."""
    directory.mkdir()
    home.root.mkdir(parents=True, exist_ok=True)
    if uid != os.geteuid():
        for path in (directory, home.root):
            os.chown(path, uid, uid)
    px = [*become(uid), sys.executable, *(["-O"] if settings.get("optimise") else []), "-c", ENTRY]
    root = directory / "the clone"
    environment = {
        **os.environ,
        **{k: str(settings[k]) for k in ("TZ", "LC_ALL", "PYTHONHASHSEED")},
        "PX_HOME": str(home.root),
        "HOME": str(directory),
        "UV_CACHE_DIR": str(directory / "uv-cache"),
    }

    def run(command: list[str], cwd: Path) -> bytes:
        done = subprocess.run(
            command, cwd=cwd, env=environment, umask=settings["umask"], capture_output=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')}"
        return done.stdout

    run([*become(uid), "git", "clone", "-q", str(bundle), str(root)], directory)
    run([*px, "sync", "--sandbox"], root)
    details: dict[str, Any] = json.loads(run([*px, "pack", "image", "--json"], root))["details"]
    return details


def compared(source: Project, directory: Path, warm: Home, *, both_cold: bool) -> None:
    """Two machines, the second with a store that is made from downloads only; the first too, if there is time."""
    # A bundle, because git does not clone from another user's repository.
    bundle = directory / "origin.bundle"
    source.git("bundle", "create", "-q", str(bundle), "HEAD", "main")
    bundle.chmod(0o644)
    results = []
    for number, (name, settings) in enumerate(MACHINES.items()):
        # An ordinary user is both; root leaves the second to somebody else.
        uid = os.geteuid() if number == 0 or os.geteuid() != 0 else another_user()
        cold = both_cold or number > 0
        home = clone(warm, Home(directory / f"home-{name}"), DOWNLOADS, uid=uid) if cold else warm
        results.append(packed_by(settings, bundle, directory / f"machine {name}", home, uid))
        time.sleep(1.1)  # files get other times
    first, second = results
    assert first["images"] == second["images"]
    assert first["digest"] == second["digest"]


@pytest.mark.slow
def test_two_machines(template: Project, shared: Project, warm_home: Home, open_directory: Path) -> None:
    compared(template, open_directory, warm_home, both_cold=False)


@pytest.mark.slow
@pytest.mark.network
def test_two_machines_that_build_from_source(
    warm_home: Home, open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    compared(make_project(open_directory / "real", REAL), open_directory, warm_home, both_cold=True)


def test_the_original_and_its_clones(project: Project, tmp_path: Path) -> None:
    """Remotes differ between clones, and so do their directories."""
    first = project.pack().digest
    other = Project(tmp_path / "a clone of it")
    project.git("clone", "-q", str(project.root), str(other.root))
    other.sync()
    assert other.pack().digest == first
    for remote in ("git@forge.example.org:team/demo.git", "https://user:secret@forge.example.org/team/demo"):
        other.git("remote", "set-url", "origin", remote)
        project.git("remote", "remove", "origin") if project.git("remote") else ""
        project.git("remote", "add", "origin", "ssh://git@forge.example.org/team/demo.git")
        assert other.pack().digest == project.pack().digest != first
