"""Locking for the sandbox: dependencies' code runs in a sandbox or not at all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.attacks import sdists
from tests.integration.attacks.conftest import SECRET
from tests.support.index import serving
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


@pytest.mark.parametrize(
    "kind", ["garbage", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("link", "huge", "fifo"))]
)
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


WATCH = """
import json, os, sys
with open("LOG", "a") as log:
    log.write(json.dumps([os.getpid(), sys.orig_argv]) + "\\n")
"""
WATCHED = ("python", "python3", "python3.11", "gcc", "cc", "git", "sh", "env")


def test_a_private_index_without_anything_running_on_the_host(
    warm: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Python that starts on the host tells a log, and so does every program that is looked for on PATH."""
    started = time.time()
    log, planted = tmp_path / "log", tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(WATCH.replace("LOG", str(log)))
    for name in WATCHED:
        (planted / name).write_text(f"#!/bin/bash\necho '[0, [\"{name}\"]]' >> {log}\nexit 1\n")
        (planted / name).chmod(0o755)
    sdists.sdist(tmp_path / "index", "evil", RUNS.replace("MARKER", str(tmp_path / "pwned")), static=False)
    root = tmp_path / "careless"
    root.mkdir()
    with serving(tmp_path / "index", SECRET) as index:
        (root / "pyproject.toml").write_text(
            '[project]\nname = "careless"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["evil"]\n'
            f'[[tool.uv.index]]\nname = "private"\nurl = "{index.url}"\ndefault = true\n'
        )
        monkeypatch.setenv("UV_INDEX_PRIVATE_USERNAME", "reader")
        monkeypatch.setenv("UV_INDEX_PRIVATE_PASSWORD", SECRET)
        path = f"{planted}:{os.environ['PATH']}"
        run_px("sync", "--sandbox", cwd=root, PATH=path, PYTHONPATH=str(planted))
    said = run_px("run", "--sandbox", "python", "-c", "import evil; print(evil.__file__)", cwd=root)
    assert said.stdout.startswith("/opt/px/env/")
    ran = [json.loads(line)[1] for line in log.read_text().splitlines()]
    assert ran, "px itself is a Python that starts"
    assert [argv for argv in ran if not any("bin/px" in word for word in argv)] == []
    assert not (tmp_path / "pwned").exists()
    assert list(_holding(SECRET.encode(), warm.root, started)) == []
    assert list(_holding(SECRET.encode(), root, 0)) == []


def _holding(secret: bytes, top: Path, since: float) -> Iterator[Path]:
    for directory, _, names in os.walk(top):
        for name in names:
            path = Path(directory, name)
            try:
                if path.lstat().st_ctime >= since and not path.is_symlink() and secret in path.read_bytes():
                    yield path
            except OSError:
                continue  # another test's, gone since


def test_a_project_that_no_python_of_the_host_can_serve(warm: Home, tmp_path: Path) -> None:
    """debian-13 has Python 3.13; the tests run with an older one, and nothing may be downloaded."""
    evil = sdists.sdist(tmp_path / "sdists", "evil", RUNS.replace("MARKER", "/nowhere/x"), static=False)
    root = sdists.project(tmp_path / "newer", evil, '[tool.px.sandbox]\nbase = "debian-13"\n')
    text = (root / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(text.replace(">=3.11", ">=3.13"))
    run_px("sync", "--sandbox", cwd=root, UV_PYTHON_DOWNLOADS="never", timeout=600)
    said = run_px("run", "--sandbox", "python", "-c", "import evil, sys; print(sys.version_info[:2])", cwd=root)
    assert said.stdout == "(3, 13)\n"


@pytest.mark.parametrize("place", ["{victim}", "{victim}/notes.txt", "home"])
def test_a_manifest_cannot_show_uv_any_place_of_the_host(warm: Home, tmp_path: Path, victim: Path, place: str) -> None:
    """A target can write the manifest; what it names is shown to uv only if it looks like a package or an index."""
    named, home = place.format(victim=victim), os.environ.get("HOME", "/")
    if place == "home":  # it looks like a project, and is not shown all the same
        (victim / "pyproject.toml").write_text("")
        named = home = str(victim)
    stolen = "import os\nif os.path.lexists('PLACE'):\n    raise SystemExit('SEEN')\n".replace("PLACE", named)
    backend = RUNS.replace("MARKER", "/nowhere/x") + stolen
    more = f'find-links = ["{named}"]\n'
    evil = sdists.sdist(tmp_path / "sdists", "evil", backend, static=False)
    root = sdists.project(tmp_path / "careless", evil, f"[tool.uv]\n{more}")
    done = run_px("sync", "--sandbox", cwd=root, check=False, HOME=home)
    assert "SEEN" not in done.stderr
