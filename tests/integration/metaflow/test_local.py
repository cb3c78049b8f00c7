"""``--with sandbox`` on this machine: the same results as a plain run, in a Debian without the host in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import metaflow
import pytest

from metaflow_extensions.sandbox.plugins.local import mounts
from px.home import Home
from tests.conftest import REPO
from tests.support.index import Index
from tests.support.needs import need
from tests.support.px import PX, UV
from tests.support.users import another_user, become

from .conftest import ACCESS, FLOWS, SECRET, Workspace, flows, metadata_service

ARTIFACTS = [
    "squares",
    "attempts",
    "sides",
    "greeting",
    "from_secret",
    "parameters",
    "included",
    "failed_as",
    "died",
    "was_late",
    "count",
    "seen",
    "me",
]


def artifacts(workspace: Workspace, flow: str, step: str, names: list[str], **env: str) -> dict[str, Any]:
    expression = f"{{n: getattr(Flow({flow!r}).latest_run[{step!r}].task.data, n) for n in {names!r}}}"
    found: dict[str, Any] = workspace.ask(expression, **env)
    return found


def running(home: Home, *words: str) -> list[Path]:
    """The records of sandboxes with these words in them; other tests may be running others."""
    return [f for f in (home.sandbox / "running").glob("*.json") if all(word in _text(f) for word in words)]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:  # that of another test, which has ended
        return ""


@pytest.fixture
def bounded() -> None:
    """These flows ask for cpu and memory, and px refuses what it cannot bound."""
    need("control groups")


@pytest.mark.usefixtures("bounded")
def test_every_feature_as_in_a_plain_run(workspace: Workspace, sandbox_home: Home) -> None:
    results = []
    for more in ([], ["--with", "sandbox"]):
        workspace.run("features.py", "run", "--tag", "mine", *more)
        found = artifacts(workspace, "FeaturesFlow", "end", ARTIFACTS)
        run = "Flow('FeaturesFlow').latest_run"
        found["logs"] = workspace.ask(f"[{run}['start'].task.stdout, {run}['start'].task.stderr]")
        found["tags"] = workspace.ask(f"[t for t in sorted({run}.tags) if not t.startswith(('date:', 'user:'))]")
        found["steps"] = workspace.ask(f"sorted((s.id, len(list(s))) for s in {run})")
        cards = "__import__('metaflow.cards').cards.get_cards"
        found["cards"] = workspace.ask(f"[c.type for c in {cards}({run}['left'].task)]")
        results.append(found)
    assert results[0] == results[1]
    assert results[1]["squares"] == [0, 1, 4]
    metadata = workspace.ask("Flow('FeaturesFlow').latest_run['end'].task.metadata_dict")
    assert metadata["sandbox-backend"] == "local"
    assert metadata["sandbox-id"].startswith("local-")
    assert len(metadata["sandbox-image"]) == 64
    assert running(sandbox_home, "FeaturesFlow") == []


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.usefixtures("bounded")
def test_a_step_sees_a_debian_and_nothing_of_the_host(workspace: Workspace, listener: int, tmp_path: Path) -> None:
    workspace.run("ends.py", "run")
    other = next((workspace.root / ".metaflow" / "EndsFlow").glob("[0-9]*/start/*/0.data.json"))
    before = other.read_bytes()
    secret = {"PLANTED_SECRET": "planted-a1b2", "E2B_API_KEY": "planted-key-c3d4", "PORT": str(listener)}
    beside = tmp_path / "beside.txt"
    beside.write_text("a file of the host, next to the working directory")
    hidden = [beside, REPO / "pyproject.toml", REPO / "tests" / "conftest.py", Path(sys.executable)]
    assert all(path.exists() for path in hidden)
    arguments = ["--other", str(other), "--outside", ":".join(map(str, hidden))]
    workspace.run("look.py", "run", "--with", "sandbox", *arguments, METAFLOW_SANDBOX_FORWARD="PORT", **secret)
    names = ["system", "cwd", "home_files", "outside_seen", "environment", "outer", "processes", "written", "visible"]
    seen = artifacts(workspace, "LookFlow", "start", names)
    assert "VERSION_CODENAME=bookworm" in seen["system"]
    assert seen["cwd"] == str(workspace.root)
    assert (seen["home_files"], seen["visible"]) == ([], ["/home/px"])
    assert seen["outside_seen"] == []
    assert "planted" not in str(seen["environment"])
    assert "planted" not in str(seen["outer"])
    assert seen["environment"]["PORT"] == str(listener)
    assert seen["processes"] < 10
    assert seen["written"]["here.txt"] is True
    assert "Read-only" in seen["written"][str(other)]
    assert other.read_bytes() == before
    assert (workspace.root / "here.txt").read_text() == "x"
    assert artifacts(workspace, "LookFlow", "closed", ["reached"]) == {"reached": False}


def test_the_working_directory_is_not_shared_when_it_is_a_home(workspace: Workspace) -> None:
    (workspace.root / "private.txt").write_text("private")
    workspace.run(
        "look.py", "run", "--with", "sandbox", HOME=str(workspace.root), PORT="1", METAFLOW_SANDBOX_FORWARD="PORT"
    )
    assert not (workspace.root / "here.txt").exists()


def test_a_segmentation_fault_is_called_one(workspace: Workspace) -> None:
    done = workspace.fail("ends.py", "run", "--with", "sandbox", "--how", "fault")
    assert "Task failed with a segmentation fault." in done.output


@pytest.mark.parametrize("how", ["fail", "run"])
def test_the_time_limit_of_the_decorator(workspace: Workspace, sandbox_home: Home, how: str) -> None:
    """The task is killed; the run, caught or not, leaves no record of it."""
    ways = ["--with", "catch:print_exception=False"] if how == "run" else []
    done = getattr(workspace, how)("ends.py", "run", "--with", "sandbox:timeout=2", *ways, "--how", "hang")
    assert "limit of 2 seconds" in done.output
    run = re.search(r"run-id (\d+)", done.output)
    assert run is not None
    assert running(sandbox_home, run[1]) == []


@pytest.mark.usefixtures("bounded")
def test_memory_is_bounded(workspace: Workspace) -> None:
    done = workspace.fail("ends.py", "run", "--with", "sandbox:memory=200", "--how", "memory")
    assert "begun" in done.output
    assert "4096" not in done.output
    assert "more than its 200 MB of memory" in done.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_run_ends_the_sandbox(workspace: Workspace, sandbox_home: Home, number: signal.Signals) -> None:
    process = workspace.popen("ends.py", "run", "--with", "sandbox", "--how", "hang")
    assert process.stdout is not None
    for line in process.stdout:
        if "begun" in line:
            break
    mine = running(sandbox_home, "EndsFlow", f'"parent": {process.pid},')
    assert len(mine) == 1
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    process.wait(timeout=30)
    process.stdout.close()
    end = time.monotonic() + 20
    while _processes_of(workspace.root):
        assert time.monotonic() < end, _processes_of(workspace.root)
        time.sleep(0.1)


def _processes_of(root: Path) -> list[str]:
    """The processes that have this directory as theirs, inside sandboxes too."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(root):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_fifty_tasks_fifty_sandboxes(workspace: Workspace, sandbox_home: Home) -> None:
    workspace.run("many.py", "run", "--with", "sandbox", "--max-workers", "4")
    found = artifacts(workspace, "ManyFlow", "joined", ["total", "sandboxes"])
    assert found["total"] == 2450
    assert len(found["sandboxes"]) == 50
    assert running(sandbox_home, "ManyFlow") == []


def test_parallel_steps_run_in_one_sandbox(workspace: Workspace) -> None:
    workspace.run("parallel.py", "run", "--with", "sandbox")
    found = artifacts(workspace, "ParallelFlow", "joined", ["nodes_seen"])
    assert found == {"nodes_seen": [[0, 3], [1, 3], [2, 3]]}


def test_resume_takes_over_what_was_done(workspace: Workspace) -> None:
    workspace.run("small.py", "run", "--with", "sandbox")
    workspace.run("small.py", "resume", "end", "--with", "sandbox")
    found = workspace.ask("[len(list(Flow('SmallFlow'))), Flow('SmallFlow').latest_run.successful]")
    assert found == [2, True]


def test_the_runner_api(workspace: Workspace) -> None:
    flow = flows() / "small.py"
    run = f"Runner({str(flow)!r}, decospecs=['sandbox'], show_output=False).run()"
    code = f"(lambda r: [r.status, r.run.data.depth])({run})"
    assert workspace.ask(code) == ["successful", 4]


PROJECT_FLOW = """
from metaflow import FlowSpec, step
import hello

class ProjectFlow(FlowSpec):
    @step
    def start(self):
        self.where = hello.__file__
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    ProjectFlow()
"""

OWN_FLOW = """
from metaflow import FlowSpec, step

class OwnFlow(FlowSpec):
    @step
    def start(self):
        import my_app, my_lib
        self.found = [my_app.NAME, my_lib.VALUE]
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    OwnFlow()
"""
SOURCES = '[tool.uv.sources]\nmy-lib = { path = "../lib", editable = true }\n'


def package(root: Path, name: str, code: str, more: str = "", dependencies: str = "") -> Path:
    """A project with a package in ``src``; the package's file."""
    module = root / "src" / name.replace("-", "_") / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(code)
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{dependencies}]\n'
        f'[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n{more}'
    )
    return module


def test_a_projects_own_package_and_its_editable_sibling(workspace: Workspace) -> None:
    """Both in ``src``, both live; and the run is started in a directory beside the project."""
    app, lib = workspace.root.parent / "app", workspace.root.parent / "lib"
    package(app, "my-app", "NAME = 'app'\n", SOURCES, '"my-lib"')
    module = package(lib, "my-lib", "VALUE = 1\n")
    (app / "flow.py").write_text(OWN_FLOW)
    subprocess.run([UV, "lock", "--quiet"], cwd=app, check=True)
    for value in (1, 2):
        module.write_text(f"VALUE = {value}\n")
        workspace.run("../app/flow.py", "run", "--with", "sandbox")
        assert artifacts(workspace, "OwnFlow", "start", ["found"]) == {"found": ["app", value]}
    (workspace.root / "link.py").symlink_to(app / "flow.py")  # out of every project
    workspace.run("../work/link.py", "run", "--with", "sandbox")
    assert artifacts(workspace, "OwnFlow", "start", ["found"]) == {"found": ["app", 2]}


def test_the_project_around_the_flow(index: Index, app: Path, workspace: Workspace) -> None:
    """Its locked packages are in the sandbox, under the sbx_id that `px run --sandbox` has there."""
    assert index.url
    (app / "flow.py").write_text(PROJECT_FLOW)
    (app / "hello.py").write_text("")  # the run needs something to import; the sandbox has the real one
    inside = Workspace(app, workspace.env)
    subprocess.run([PX, "sync", "--sandbox"], cwd=app, env=inside.env, check=True, capture_output=True)
    (app / "hello.py").unlink()
    shim = workspace.root / "hello.py"
    shim.write_text("")
    done = subprocess.run(
        [sys.executable, "flow.py", "run", "--with", "sandbox"],
        cwd=app,
        env={**inside.env, "PYTHONPATH": str(workspace.root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert inside.ask("Flow('ProjectFlow').latest_run['start'].task.data.where").startswith("/opt/px/env/")
    metadata = inside.ask("Flow('ProjectFlow').latest_run['start'].task.metadata_dict")
    explained = subprocess.run(
        [PX, "sandbox", "explain", "--json"], cwd=app, env=inside.env, check=True, capture_output=True, text=True
    )
    assert json.loads(explained.stdout)["details"]["sbx_id"] == metadata["sandbox-image"]


def test_with_a_remote_datastore(workspace: Workspace, s3: dict[str, str]) -> None:
    done = workspace.run("small.py", "run", "--with", "sandbox", **s3)
    assert SECRET not in done.output
    found = artifacts(workspace, "SmallFlow", "start", ["depth", "keys"], **s3)
    assert found == {"depth": 4, "keys": []}
    logs = workspace.ask("Flow('SmallFlow').latest_run['start'].task.stdout", **s3)
    assert logs == "first line\nsecond line\n"


def test_service_metadata(workspace: Workspace, service: str) -> None:
    env = {"METAFLOW_SERVICE_URL": service, "METAFLOW_DEFAULT_METADATA": "service"}
    workspace.run("small.py", "run", "--with", "sandbox", **env)
    metadata = workspace.ask("Flow('SmallFlow').latest_run['start'].task.metadata_dict", **env)
    assert metadata["sandbox-backend"] == "local"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with metadata_service(tmp_path_factory.mktemp("service")) as url:
        yield url


def test_no_secret_is_left_anywhere(workspace: Workspace, s3: dict[str, str], sandbox_home: Home) -> None:
    """The planted ones are searched for in files; command lines are searched by the test of the remote run."""
    keys = {k: v for k, v in s3.items() if k.startswith("AWS_")}
    workspace.run(
        "small.py", "run", "--with", "sandbox", MINE="forwarded-5e6f", METAFLOW_SANDBOX_FORWARD="MINE", **keys
    )
    for path in [*workspace.root.rglob("*"), *(sandbox_home.sandbox / "running").glob("*")]:
        if path.is_file():
            content = path.read_bytes()
            assert SECRET.encode() not in content, path
            assert ACCESS.encode() not in content, path


def test_cards_with_a_root_of_their_own_are_where_a_plain_run_has_them(workspace: Workspace, tmp_path: Path) -> None:
    """Metaflow then keeps them beside the data, where only this task's own directories can be written."""
    workspace.run("small.py", "run", "--with", "sandbox", METAFLOW_CARD_LOCALROOT=str(tmp_path / "cards"))
    assert len(list((workspace.root / ".metaflow" / "SmallFlow" / "runs").rglob("cards/*.html"))) == 1


@pytest.mark.parametrize("directory", ["/", "/usr"])
def test_a_run_in_a_directory_that_the_image_needs(workspace: Workspace, directory: str) -> None:
    """The image keeps its own; hiding it behind an empty one would leave no Python."""
    there = Workspace(Path(directory), {**workspace.env, "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(workspace.root)})
    before = set(os.listdir(directory))
    there.run("ends.py", "run", "--with", "sandbox")
    assert ".metaflow" not in set(os.listdir(directory)) - before, "it would become the datastore of every run below"


def test_a_directory_that_may_not_be_entered_is_not_shown() -> None:
    """Beside the Python files of a home or of ``/`` there are directories of other people."""
    root = Path(tempfile.mkdtemp(prefix="px-metaflow-"))
    root.chmod(0o755)
    (root / "flow.py").write_text("")
    (root / "package").mkdir()
    (root / "package/__init__.py").write_text("")
    (root / "shut").mkdir(mode=0)
    code = f"import json, os, pathlib, sys\nfrom px.home import Home\nfrom {mounts.__name__} import Mounts\n"
    code += "shown = Mounts(Home.from_environment())\n"
    code += "shown._share_python_files(pathlib.Path(sys.argv[1]))\nos.rmdir(shown.scratch[0])\n"
    code += "print(json.dumps([row[1] for row in shown.rows[1:]]))"
    command = [*become(os.geteuid() or another_user()), sys.executable, "-c", code, str(root)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [f"{root}/flow.py", f"{root}/package"]
    finally:
        (root / "shut").rmdir()
        shutil.rmtree(root)


def test_a_flow_that_is_a_link(workspace: Workspace) -> None:
    """Python finds the modules beside the file that the link stands for."""
    real = workspace.root / "real"
    real.mkdir()
    (real / "flow.py").write_text("import beside\n" + (FLOWS / "ends.py").read_text())
    (real / "beside.py").write_text("")
    elsewhere = Workspace(workspace.root / "elsewhere", workspace.env)
    elsewhere.root.mkdir()
    (elsewhere.root / "link.py").symlink_to(real / "flow.py")
    elsewhere.run(str(elsewhere.root / "link.py"), "run", "--with", "sandbox")


def test_the_version_of_a_checkout_of_metaflow(workspace: Workspace, tmp_path: Path) -> None:
    """Metaflow asks git for it; the sandbox has neither git nor the repository."""
    checkout = tmp_path / "checkout"
    shutil.copytree(Path(metaflow.__file__).parent, checkout / "metaflow", ignore=shutil.ignore_patterns("*.pyc"))
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], ["add", "metaflow/__init__.py"], [*me, "commit", "-qm", "one"], ["tag", "9.9.9"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    subprocess.run(["git", *me, "commit", "-qm", "two", "--allow-empty"], cwd=checkout, check=True)
    env = {"PYTHONPATH": str(checkout)}
    found = []
    for more in ([], ["--with", "sandbox"]):
        workspace.run("ends.py", "run", *more, **env)
        metadata = workspace.ask("Flow('EndsFlow').latest_run['start'].task.metadata_dict", **env)
        found.append(metadata["metaflow_version"])
    assert found[0] == found[1]
    assert found[1].startswith("9.9.9.post1-git")


def test_the_example_of_the_tutorial(workspace: Workspace) -> None:
    """Where it lies: it must not be taken for a part of the project around it, which has no lock."""
    workspace.run(str(REPO / "examples" / "flow" / "flow.py"), "run", "--with", "sandbox")
    assert workspace.ask("Flow('PiFlow').latest_run.successful") is True
