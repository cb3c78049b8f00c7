"""Places of the host that lie in the working tree: px's home, its state, its installation, and what is on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.conftest import REPO
from tests.integration.attacks import sdists
from tests.integration.attacks.test_locking import RUNS
from tests.integration.metaflow.conftest import Workspace, _clean
from tests.integration.sandbox.conftest import make_plain
from tests.integration.sandbox.homes import clone
from tests.support.px import run_px

pytestmark = pytest.mark.network

STRIKE = """
import json, os, shutil, sys
place = sys.argv[1]
def attempt(action, *args):
    try:
        return str(action(*args))
    except OSError as e:
        return e.strerror
said = {"seen": attempt(os.listdir, place)}
for top, folders, files in os.walk(place):
    for name in files:
        if name == "bubblewrap":
            said["rewritten"] = attempt(open(os.path.join(top, name), "a").write, "x")
said["made"] = attempt(os.mkdir, place + "/planted")
at = place
while at != "/app":
    said["renamed " + at] = attempt(os.rename, at, at + "-old")
    said["removed " + at] = attempt(os.rmdir, at)
    at = os.path.dirname(at)
print(json.dumps(said))
"""


def strike(root: Path, place: str, home: str | None = None) -> dict[str, str]:
    """Let a target do its worst to a directory below /app, and say how far it came."""
    done = run_px("run", "--sandbox", "python", "-c", STRIKE, place, cwd=root, PX_HOME=home or os.environ["PX_HOME"])
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture(params=["home", "ci/cache/home", ".px", "link"])
def inside(request: pytest.FixtureRequest, seed: Home, tmp_path: Path) -> Iterator[tuple[Path, str, str]]:
    """A project, PX_HOME in it, and where that would be in the sandbox."""
    root = make_plain(tmp_path / "plain")
    place = "home" if request.param == "link" else request.param
    home = clone(seed, Home(root / place))
    configured = home.root
    if request.param == "link":
        configured = tmp_path / "link"
        configured.symlink_to(home.root)
    yield root, str(configured), f"/app/{place}"
    remove_tree(home.root)


def test_px_home_is_not_visible_inside(inside: tuple[Path, str, str]) -> None:
    """H3: the target rewrote px's cache, and the next run started its bwrap."""
    root, home, place = inside
    run_px("sync", "--sandbox", cwd=root, PX_HOME=home)
    for _ in ("cold", "warm"):
        before = sorted(set(os.listdir(home)) - {"caches"})
        said = strike(root, place, home)
        assert said.pop("seen") == "[]"
        assert "None" not in said.values(), said
        assert "rewritten" not in said
        # px itself makes the project's cache there, the first time that it runs.
        assert sorted(set(os.listdir(home)) - {"caches"}) == before


@pytest.mark.slow
def test_px_home_is_not_visible_in_a_volume(inside: tuple[Path, str, str], tmp_path: Path) -> None:
    root, home, place = inside
    look = "import os; print(os.listdir('/data/plain/' + place.removeprefix('/app/')))".replace("place", repr(place))
    said = run_px(
        "run", "--sandbox", "--volume", f"{tmp_path}:/data", "python", "-c", look, cwd=root, PX_HOME=home
    )  # fmt: skip
    assert said.stdout == "[]\n"


def test_px_home_is_not_visible_while_uv_locks(seed: Home, tmp_path: Path) -> None:
    """A source distribution may be built to be resolved, and its build sees the project."""
    root = tmp_path / "careless"
    home = clone(seed, Home(root / "home"))
    backend = f"""
import os
if os.path.isdir("{home.root}") and os.listdir("{home.root}"):
    raise SystemExit("px's home is visible")
{RUNS.replace("MARKER", "/nowhere")}
"""
    sdists.project(root, sdists.sdist(tmp_path / "sdists", "evil", backend, static=False))
    done = run_px("sync", "--sandbox", cwd=root, check=False, PX_HOME=str(home.root))
    remove_tree(home.root)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "part", ["store", *(pytest.param(p, marks=pytest.mark.slow) for p in ("", "store/objects", "refs"))]
)
def test_a_part_of_px_home_is_no_volume(warm: Home, tmp_path: Path, part: str) -> None:
    root = make_plain(tmp_path / "plain")
    volume = f"{warm.root / part}:/data:ro"
    done = run_px("run", "--sandbox", "--volume", volume, "python", "-c", "print('ran')", cwd=root, check=False)
    assert "PX040" in done.stderr
    assert done.stdout == ""


def test_a_project_in_px_home_is_refused(seed: Home, tmp_path: Path) -> None:
    """The target could write to whatever lies there."""
    root = make_plain(tmp_path / "plain")
    done = run_px("run", "--sandbox", "python", "-c", "print('ran')", cwd=root, check=False, PX_HOME=str(root))
    assert "PX012" in done.stderr
    assert done.stdout == ""


# --- .px ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(warm: Home, tmp_path: Path) -> Path:
    return make_plain(tmp_path / "plain")


LINKS = {
    "log": ".px/logs/px.log",
    "logs": ".px/logs",
    "state": ".px",
    "envs": ".px/envs",
    "ignore": ".px/.gitignore",
}


@pytest.mark.parametrize("target", ["there", pytest.param("dangling", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "link", [*list(LINKS)[:2], *(pytest.param(n, marks=pytest.mark.slow) for n in list(LINKS)[2:])]
)
def test_px_follows_no_link_in_its_state(plain: Path, victim: Path, link: str, target: str) -> None:
    """H4: .px/logs/px.log was opened through links; .gitignore and the link to the env were made through them."""
    path = plain / LINKS[link]
    path.parent.mkdir(parents=True, exist_ok=True)
    is_file = link in ("log", "ignore")
    path.symlink_to(victim / ("new" if target == "dangling" else "notes.txt" if is_file else ""))
    for command in (("sync", "--sandbox", "-v"), ("sync",)):
        run_px(*command, cwd=plain, check=False)
    assert [p.name for p in victim.iterdir()] == ["notes.txt"]
    assert (victim / "notes.txt").read_text() == "mine\n"


def test_a_target_cannot_write_to_the_state_of_px(plain: Path) -> None:
    run_px("sync", cwd=plain)
    run_px("sync", "--sandbox", cwd=plain)
    current = os.readlink(plain / ".px/envs/current")
    said = strike(plain, "/app/.px")
    assert "None" not in said.values(), said
    assert os.readlink(plain / ".px/envs/current") == current


# --- what px runs ------------------------------------------------------------------------------------------------


def installation(root: Path) -> Path:
    """An environment in the project with px in it: as after ``uv add --dev px-sandbox``, but for the copies."""
    venv = root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = next((venv / "lib").glob("python3*/site-packages"))
    packages = next(p for p in sys.path if p.endswith("site-packages"))
    (site / "px.pth").write_text(f"{REPO / 'src'}\n{packages}\n")
    return venv / "bin" / "python"


@pytest.mark.parametrize("when", ["cold", "warm"])
def test_a_target_cannot_change_the_px_that_started_it(plain: Path, when: str) -> None:
    python = installation(plain)
    run_px("sync", "--sandbox", cwd=plain)
    if when == "warm":
        run_px("run", "--sandbox", "python", "-c", "pass", cwd=plain)
    flags = ["--no-network"] if when == "cold" else []
    command = [str(python), "-m", "px", "run", "--sandbox", *flags, "python", "-c", STRIKE, "/app/.venv"]
    done = subprocess.run(command, cwd=plain, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert "None" not in said.values(), said
    assert not (plain / ".venv/planted").exists()


PROGRAMS = ("docker", "podman", "systemd-run", "newuidmap", "python3")


@pytest.mark.parametrize(
    "name",
    ["bwrap", "uv", "git", *(pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS)],
)
def test_a_program_in_the_project_is_not_run(plain: Path, marker: Path, name: str) -> None:
    """An activated environment puts a directory in front of PATH that targets can write to."""
    binaries = plain / ".venv/bin"
    plant = f"""
import os
os.makedirs("/app/.venv/bin", exist_ok=True)
path = "/app/.venv/bin/{name}"
open(path, "w").write("#!/bin/sh\\n: > {marker}\\nexit 1\\n")
os.chmod(path, 0o755)
"""
    run_px("run", "--sandbox", "python", "-c", plant, cwd=plain)
    path = f"{binaries}:{os.environ['PATH']}"
    for command in (
        ("run", "--sandbox", "python", "-c", "pass"),
        ("run", "--sandbox", "--memory", "512m", "python", "-c", "pass"),
        ("sync", "--sandbox", "--force"),
        ("pack", "image", "--out", "../image", "--allow-dirty"),
        ("doctor",),
    ):
        run_px(*command, cwd=plain, check=False, PATH=path)
        assert not marker.exists(), command


# --- what px mounts ----------------------------------------------------------------------------------------------


def test_a_volume_that_became_a_link(plain: Path, victim: Path) -> None:
    """One run replaces ./data by a link; the next run would mount what it points at."""
    (plain / "data").mkdir()
    replace = f"import os; os.rmdir('/app/data'); os.symlink({str(victim)!r}, '/app/data')"
    run_px("run", "--sandbox", "python", "-c", replace, cwd=plain)
    look = "import os; print(os.listdir('/data'))"
    done = run_px("run", "--sandbox", "--volume", "./data:/data", "python", "-c", look, cwd=plain, check=False)
    assert "PX040" in done.stderr
    assert str(victim) in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", [".git", ".px", ".venv"])
def test_what_is_mounted_read_only_is_not_mounted_through_a_link(plain: Path, victim: Path, name: str) -> None:
    run_px("run", "--sandbox", "python", "-c", f"import os; os.symlink({str(victim)!r}, '/app/{name}')", cwd=plain)
    look = f"import os; print(os.path.exists('/app/{name}/notes.txt'), os.path.exists({str(victim)!r}))"
    said = run_px("run", "--sandbox", "python", "-c", look, cwd=plain)
    assert said.stdout == "False False\n"


PIPES = [".gitignore", ".pxignore", "src/.gitignore", "src/plain_project/__init__.py", "uv.lock", "pyproject.toml"]


@pytest.mark.parametrize("name", [PIPES[0], *(pytest.param(n, marks=pytest.mark.slow) for n in PIPES[1:])])
def test_a_pipe_in_the_project_does_not_hold_px_up(plain: Path, name: str) -> None:
    """A target that wants to be a nuisance puts one where px reads."""
    plant = f"import os\nif os.path.exists({name!r}): os.unlink({name!r})\nos.mkfifo({name!r})"
    run_px("run", "--sandbox", "python", "-c", plant, cwd=plain)
    commands = [("run", "--sandbox", "python", "-c", "pass"), ("pack", "image", "--out", "../image", "--allow-dirty")]
    for command in (*commands, ("status",), ("sync", "--sandbox", "--frozen")):
        run_px(*command, cwd=plain, check=False, timeout=100)


# --- a step of a flow --------------------------------------------------------------------------------------------

FLOW = """
import subprocess, sys
from metaflow import FlowSpec, step

class AttackFlow(FlowSpec):
    @step
    def start(self):
        self.said = [subprocess.run([sys.executable, "-c", CODE, place], capture_output=True, text=True).stdout
                     for place in PLACES]
        self.next(self.end)

    @step
    def end(self):
        pass

AttackFlow()
"""


def test_a_local_step_sees_as_little(seed: Home, tmp_path: Path) -> None:
    root = tmp_path / "work"
    places = [str(root / name) for name in ("ci/home", ".git", ".px")]
    for place in places:
        Path(place).mkdir(parents=True)
    home = clone(seed, Home(root / "ci/home"))
    code = STRIKE.replace("/app", str(root))
    (root / "flow.py").write_text(FLOW.replace("CODE", repr(code)).replace("PLACES", repr(places)))
    workspace = Workspace(root, _clean(home.root))
    workspace.run(str(root / "flow.py"), "run", "--with", "sandbox")
    for said in map(json.loads, workspace.ask("Flow('AttackFlow').latest_run['start'].task.data.said")):
        assert said.pop("seen") == "[]"
        assert "None" not in said.values(), said
    remove_tree(home.root)
