"""Locking for the sandbox: dependencies' code runs in a sandbox or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.home import Home
from tests.integration.attacks import sdists
from tests.support.px import run_px

pytestmark = pytest.mark.network

RUNS = """
import os
def _strike():
    try:
        open("MARKER", "w").write("%d" % os.getuid())
    except OSError:
        pass
_strike()
def prepare_metadata_for_build_wheel(directory, settings=None):
    info = os.path.join(directory, "evil-1.0.dist-info")
    os.mkdir(info)
    open(info + "/METADATA", "w").write("Metadata-Version: 2.2\\nName: evil\\nVersion: 1.0\\n")
    open(info + "/WHEEL", "w").write("Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return "evil-1.0.dist-info"
def build_wheel(d, s=None, m=None):
    return _wheel(d, {'evil.py': b''})
"""


@pytest.fixture
def careless(tmp_path: Path, marker: Path) -> Path:
    backend = RUNS.replace("MARKER", str(marker))
    return sdists.project(tmp_path / "careless", sdists.sdist(tmp_path / "sdists", "evil", backend, static=False))


def test_a_first_sync_runs_nothing_on_the_host(warm: Home, careless: Path, marker: Path) -> None:
    """C3: an sdist without static metadata is built to be resolved."""
    run_px("sync", "--sandbox", cwd=careless)
    assert (careless / "uv.lock").is_file()
    assert not marker.exists()


def test_a_check_of_the_lock_runs_nothing_on_the_host(warm: Home, careless: Path, marker: Path, tmp_path: Path) -> None:
    run_px("sync", "--sandbox", cwd=careless)
    marker.unlink(missing_ok=True)
    text = (careless / "pyproject.toml").read_text()
    (careless / "pyproject.toml").write_text(text + "# a comment\n")
    for command in (("sync", "--sandbox"), ("run", "--sandbox", "python", "-c", "pass"), ("sandbox", "explain")):
        run_px(*command, cwd=careless, UV_CACHE_DIR=str(tmp_path / "another-cache"), CI="1", check=False)
        run_px(*command, cwd=careless, UV_CACHE_DIR=str(tmp_path / "another-cache"), check=False)
        assert not marker.exists(), command


def test_adding_and_updating_for_the_sandbox_run_nothing_on_the_host(
    warm: Home, careless: Path, marker: Path, tmp_path: Path
) -> None:
    run_px("sync", "--sandbox", cwd=careless)
    marker.unlink(missing_ok=True)
    other = str(tmp_path / "another-cache")
    run_px("update", "--sandbox", cwd=careless, UV_CACHE_DIR=other)
    run_px("add", "--sandbox", "idna", cwd=careless, UV_CACHE_DIR=other)
    run_px("remove", "--sandbox", "idna", cwd=careless, UV_CACHE_DIR=other)
    assert not marker.exists()
    assert "idna" not in (careless / "pyproject.toml").read_text()


def test_a_build_while_locking_cannot_write_to_the_project(warm: Home, tmp_path: Path) -> None:
    """What it changes in the working tree stays where it was: in its sandbox."""
    root = tmp_path / "careless"
    backend = RUNS.replace("MARKER", f"{root}/planted.py").replace(
        "_strike()\ndef prepare", f"_strike()\nopen('{root}/pyproject.toml', 'a').write('# was here')\ndef prepare"
    )
    sdists.project(root, sdists.sdist(tmp_path / "sdists", "evil", backend, static=False))
    before = (root / "pyproject.toml").read_text()
    run_px("sync", "--sandbox", cwd=root, check=False)
    assert (root / "pyproject.toml").read_text() == before
    assert not (root / "planted.py").exists()


@pytest.mark.parametrize("kind", ["link", "garbage", "huge", "fifo"])
def test_a_lock_that_is_none_is_refused(warm: Home, tmp_path: Path, victim: Path, kind: str) -> None:
    """A build that replaces the lock by something else: it does not get into the project."""
    root = tmp_path / "careless"
    plant = {
        "link": f"os.symlink('{victim}/notes.txt', path)",
        "garbage": "open(path, 'w').write('= not toml [')",
        "huge": "open(path, 'wb').truncate(1 << 40)",
        "fifo": "os.mkfifo(path)",
    }[kind]
    strike = f"""
import threading, time
def _later():
    path = "{root}/uv.lock"
    while True:
        try:
            os.path.lexists(path) and os.unlink(path)
            {plant}
        except OSError:
            pass
        time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    for fd in range(3):  # uv waits until its builds close them
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.closerange(3, 64)
    _later()
"""
    backend = RUNS.replace("MARKER", "/nowhere/x").replace("_strike()\ndef prepare", f"{strike}\ndef prepare")
    sdists.project(root, sdists.sdist(tmp_path / "sdists", "evil", backend, static=False))
    run_px("sync", "--sandbox", cwd=root, check=False, timeout=120)
    lock = root / "uv.lock"
    assert not lock.is_symlink()
    assert not lock.exists() or "[[package]]" in lock.read_text()
    assert (victim / "notes.txt").read_text() == "mine\n"
