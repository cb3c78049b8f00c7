"""Who runs px and where: ordinary users, strange paths, projects that cannot be written, containers in containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.sandbox.conftest import lock, make_plain
from tests.integration.sandbox.homes import DOWNLOADS, EVERYTHING, clone, leftovers
from tests.integration.sandbox.native import make_sdist, write_project
from tests.support.needs import need
from tests.support.px import PX, log_of, run_px, snapshot
from tests.support.rootfs import bubblewrap

WHO = "import os; open('made', 'w').close(); print(os.getuid(), os.getcwd(), os.path.expanduser('~'))"


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users may enter, which pytest's own is not."""
    directory = Path(tempfile.mkdtemp(prefix="px-places-"))
    directory.chmod(0o755)
    yield directory
    remove_tree(directory)


def as_user(uid: int, *args: str, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", str(PX), *args]
    env = {**os.environ, "PX_HOME": str(home), "HOME": str(home), "UV_CACHE_DIR": str(home / "uv-cache")}
    env["TMPDIR"] = str(home / "tmp")
    (home / "tmp").mkdir(exist_ok=True)
    os.chown(home / "tmp", uid, uid)
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def give(path: Path, uid: int) -> None:
    for directory, _, files in os.walk(path):
        for name in (directory, *(os.path.join(directory, f) for f in files)):
            os.chown(name, uid, uid)


def test_an_ordinary_user_builds_and_runs(public: Path, seed: Home, ordinary: int) -> None:
    sdist = make_sdist(public / "sdists", "answer42")
    root = lock(write_project(public / "project", sdist))
    give(root, ordinary)
    home = clone(seed, Home(public / "home"), DOWNLOADS, uid=ordinary)
    code = f"import answer42; assert answer42.optimized; {WHO}"
    done = as_user(ordinary, "run", "--sandbox", "python", "-c", code, cwd=root, home=home.root)
    assert (done.returncode, done.stdout) == (0, "1000 /app /home/px\n"), done.stderr
    assert "Building answer42" in done.stderr
    assert (root / "made").stat().st_uid == ordinary
    assert not leftovers(home)
    assert not list((home.root / "tmp").iterdir())
    assert log_of(root, home).stat().st_uid == ordinary
    check_a_project_that_cannot_be_written(make_plain(public / "not mine"), home, ordinary)


def check_a_project_that_cannot_be_written(root: Path, home: Home, ordinary: int) -> None:
    before = snapshot(root, ignore=())
    done = as_user(ordinary, "run", "--sandbox", "plain-cli", cwd=root, home=home.root)
    assert (done.returncode, done.stdout) == (7, "one\n"), done.stderr
    done = as_user(ordinary, "run", "--sandbox", "touch", "made", cwd=root, home=home.root)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr
    assert snapshot(root, ignore=()) == before


def test_root_is_not_root_inside_and_files_are_the_callers(plain: Path, warm: Home) -> None:
    assert run_px("run", "--sandbox", "python", "-c", WHO, cwd=plain).stdout == "1000 /app /home/px\n"
    assert (plain / "made").stat().st_uid == os.geteuid()


def test_a_store_of_another_user_that_can_only_be_read(public: Path, seed: Home, ordinary: int) -> None:
    """A home that root filled: an error that says so, not a traceback."""
    home = clone(seed, Home(public / "home"), EVERYTHING)
    root = make_plain(public / "project")
    give(root, ordinary)
    env = {"PX_HOME": str(home.root), "HOME": str(root), "UV_CACHE_DIR": str(root / ".uv")}
    command = ["setpriv", f"--reuid={ordinary}", f"--regid={ordinary}", "--clear-groups", str(PX)]
    done = subprocess.run(
        [*command, "run", "--sandbox", "python", "-c", "pass"],
        cwd=root, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 124
    assert "PX811" in done.stderr
    assert "export PX_HOME=DIR" in done.stderr


@pytest.mark.parametrize("name", ["with spaces & 'quotes'", "žluťoučký kůň 馬", "-rf", "a:b,c=d\\e"])
def test_strange_paths(tmp_path: Path, warm: Home, name: str) -> None:
    root = make_plain(tmp_path / name)
    (root / "směr").mkdir()
    (root / "směr/ukaž me.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:])\n")
    done = run_px("run", "--sandbox", "směr/ukaž me.py", "é ü", cwd=root)
    assert done.stdout == "/app ['é ü']\n"
    done = run_px("run", "--sandbox", "./ukaž me.py", cwd=root / "směr")
    assert done.stdout == "/app/směr []\n"
    assert run_px("run", "--sandbox", "plain-cli", cwd=root, check=False).returncode == 7
    outside = run_px("--project", str(root), "run", "--sandbox", "pwd", cwd=tmp_path)
    assert outside.stdout == "/app\n"


def test_a_project_on_a_read_only_mount(plain: Path, warm: Home) -> None:
    need("root")  # to mount a directory read-only
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(plain), str(PX), "run", "--sandbox"]
    before = snapshot(plain, ignore=())
    done = subprocess.run([*command, "plain-cli"], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (7, "one\n"), done.stderr
    done = subprocess.run([*command, "touch", "made"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr
    assert snapshot(plain, ignore=()) == before


PLAIN_OUTER = ("--dev-bind", "/", "/", "--unshare-user", "--unshare-ipc", "--unshare-uts", "--die-with-parent")
OUTER = ("--unshare-all", "--share-net", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--die-with-parent")


def test_inside_a_container(plain: Path, warm: Home) -> None:
    command = [bubblewrap(), *PLAIN_OUTER, "--chdir", str(plain), str(PX), "run", "--sandbox", "plain-cli"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (7, "one\n"), done.stderr


@pytest.mark.parametrize("more", [(), ("--unshare-user", "--disable-userns")], ids=["masked proc", "no namespaces"])
def test_inside_a_container_that_forbids_it(plain: Path, alone: Home, more: tuple[str, ...]) -> None:
    """Not a crash: which engine was tried, why it cannot work, and what would help.

    Whether a masked /proc forbids it depends on the kernel and on who asks: where it does not, the sandbox works.
    """
    shutil.rmtree(alone.cache("engines"), ignore_errors=True)  # what was found out about this machine does not hold
    outer = [bubblewrap(), *more, *OUTER, "--chdir", str(plain)]
    done = subprocess.run(
        [*outer, str(PX), "run", "--sandbox", "--engine", "bubblewrap", "plain-cli"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if not more and done.returncode == 7:
        assert done.stdout == "one\n"
        return
    assert done.returncode == 125
    assert done.stderr.startswith("PX905") or "\nPX905" in done.stderr
    assert "bubblewrap said: bwrap: " in done.stderr
    assert "px doctor" in done.stderr
    assert "Traceback" not in done.stderr
