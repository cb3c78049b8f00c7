"""The action for GitHub: its steps are taken out of action.yml and run, and no input becomes a part of a script."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPO
from tests.integration.ci.steps import EXPRESSION, SHELL, Runner, action
from tests.support.index import Index
from tests.support.px import PX, run_px

STEPS = {step["id"]: step for step in action()["runs"]["steps"]}
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")
# What somebody could try to have run, in every input that reaches a shell.
EVIL = ["$(touch ran)", "'; touch ran; '", '"; touch ran; "', "x\ntouch ran", "--project=/", "*"]


@pytest.fixture
def runner(app: Path, index: Index, tmp_path: Path) -> Runner:
    """A job with a locked project, and px on its PATH."""
    run_px("sync", cwd=app)
    (tmp_path / "job").mkdir()
    found = Runner(workspace=app, temporary=tmp_path / "job", saved=tmp_path / "saved", inputs={"target": "host"})
    found.path.append(str(PX.parent))
    found.outputs["install"] = {"version": "0"}
    return found


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_is_safe_and_sound(name: str) -> None:
    step = STEPS[name]
    if "uses" in step:
        assert PINNED.fullmatch(step["uses"]), "an action of others is named by its commit"
        return
    assert step["shell"] == "bash"
    assert not EXPRESSION.search(step["run"]), "what is pasted into a script is run"
    subprocess.run([*SHELL, "-n"], input=step["run"], text=True, check=True)


def test_every_input_is_described_and_used() -> None:
    page = (REPO / "docs/how-to/use-in-ci.md").read_text()
    text = (REPO / "action.yml").read_text()
    for name in action()["inputs"]:
        assert f"`{name}`" in page
        assert f"inputs.{name}" in text
    for name in action()["outputs"]:
        assert f"`{name}`" in page


def test_syncing_with_groups_and_extras(runner: Runner) -> None:
    runner.inputs |= {"groups": "lint", "extras": " more "}
    assert runner.run(only=("key", "restore", "sync", "save")) == 0, runner.said
    assert runner.ran == ["key", "restore", "sync", "save"]
    assert run_px("run", "python", "-c", "import linter, extra_thing", cwd=runner.workspace).returncode == 0
    assert (runner.output("cache-hit"), runner.output("sbx-id")) == ("false", "")
    key = runner.outputs["key"]["key"]
    again = Runner(runner.workspace, runner.temporary, runner.saved, {"target": "none"}, path=runner.path)
    again.outputs["install"] = {"version": "0"}
    assert again.run(only=("key", "restore", "sync", "save")) == 0
    assert (again.output("cache-hit"), again.ran) == ("true", ["key", "restore"])
    (runner.workspace / "uv.lock").write_text((runner.workspace / "uv.lock").read_text() + "\n")
    assert again.run(only=("key",)) == 0
    assert again.outputs["key"]["key"] != key


def test_inputs_are_values(runner: Runner) -> None:
    for evil in EVIL:
        runner.inputs |= {"directory": evil, "target": "host"}
        assert runner.run(only=("key",)) != 0
        assert runner.run(only=("sync",)) != 0
        runner.inputs |= {"directory": ".", "target": evil}
        assert runner.run(only=("sync",)) == 1
        runner.inputs |= {"version": "@ file:///x" if evil == "*" else evil}
        assert runner.run(only=("install",)) == 1
    runner.inputs |= {"target": "host", "groups": " ".join(EVIL[:3]), "extras": EVIL[4]}
    assert runner.run(only=("sync",)) != 0
    assert "$(touch" in runner.said, "px names the group that there is not"
    assert not list(runner.workspace.rglob("ran"))
    assert not (runner.temporary / "px").exists()


@pytest.mark.slow
@pytest.mark.network
def test_the_whole_action_twice(tmp_path: Path) -> None:
    """From nothing: px is installed by pip, the sandbox is built and kept, and the second job finds it."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.11"\ndependencies = ["idna"]\n'
    )
    run_px("sync", cwd=root)
    ids, env = [], {"HOME": str(tmp_path / "home"), "PX_HOME": str(tmp_path / "home/.px"), "CI": "true"}
    for job in ("one", "two"):
        runner = Runner(root, tmp_path / job, tmp_path / "saved", env=env)
        assert runner.run() == 0, runner.said
        ids.append(runner.output("sbx-id"))
        assert runner.output("version") == run_px("--version", cwd=root).stdout.split()[1]
        assert runner.output("cache-hit") == str(job == "two").lower()
        px = tmp_path / job / "px/bin/px"
        subprocess.run([px, "run", "--sandbox", "python", "-c", "import idna"], cwd=root, env=runner.env, check=True)
        assert subprocess.run(["chmod", "-R", "u+w", tmp_path / "home"], check=False).returncode == 0
        subprocess.run(["rm", "-rf", tmp_path / "home"], check=True)
    assert ids[0] == ids[1]
    assert re.fullmatch(r"[0-9a-f]{64}", ids[0])


def test_the_example_on_the_page_uses_inputs_that_there_are() -> None:
    page = (REPO / "docs/how-to/use-in-ci.md").read_text()
    blocks = [yaml.safe_load(b) for b in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    jobs = [job for block in blocks if isinstance(block, dict) for job in block.get("jobs", {}).values()]
    ours = [step for job in jobs for step in job["steps"] if step.get("uses", "").startswith("OWNER/px@")]
    given = [step.get("with", {}) for step in ours]
    assert given
    assert {name for one in given for name in one} <= set(action()["inputs"])
