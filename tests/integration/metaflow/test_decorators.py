"""More than one compute decorator on a step, steps that are kept out, and ``@resources``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from px.home import Home
from tests.support.needs import only_for

from .conftest import Server, Workspace, serving
from .test_local import artifacts

FLOW = """
import os
from metaflow import *

class PairFlow(FlowSpec):
    {decorator}
    @step
    def start(self):
        self.where = os.environ.get("METAFLOW_SANDBOX_BACKEND", "plain")
        self.mine = os.environ.get("MINE")
        {more}
        self.next(self.end)

    @step
    def end(self):
        self.where = os.environ.get("METAFLOW_SANDBOX_BACKEND", "plain")

if __name__ == "__main__":
    PairFlow()
"""
Written = Callable[..., str]


@pytest.fixture
def written(workspace: Workspace) -> Written:
    """Write the flow with this decorator on its first step."""

    def write(decorator: str, more: str = "pass") -> str:
        path = workspace.root / "pair.py"
        path.write_text(FLOW.format(decorator=decorator, more=more))
        return str(path)

    return write


def where(workspace: Workspace, **env: str) -> list[str]:
    return [artifacts(workspace, "PairFlow", step, ["where"], **env)["where"] for step in ("start", "end")]


def test_a_providers_decorator_and_with_sandbox(
    workspace: Workspace, fresh: Server, s3: dict[str, str], written: Written
) -> None:
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800"}
    workspace.run(written(f"@{fresh.kind}"), "run", "--with", "sandbox", **env)
    assert where(workspace, **s3) == [fresh.kind, "local"]


@pytest.mark.slow
def test_a_sandbox_with_settings_and_with_a_provider(
    workspace: Workspace, fresh: Server, s3: dict[str, str], written: Written
) -> None:
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800"}
    workspace.run(written('@sandbox(env={"MINE": "kept"})'), "run", "--with", fresh.kind, **env)
    assert where(workspace, **s3) == ["local", fresh.kind]
    assert artifacts(workspace, "PairFlow", "start", ["mine"], **s3) == {"mine": "kept"}


def test_two_providers(workspace: Workspace, sandbox_home: Home, s3: dict[str, str], written: Written) -> None:
    with serving("e2b", sandbox_home) as one, serving("daytona", sandbox_home) as two:
        env = {**s3, **one.env, **two.env}
        workspace.run(written("@daytona"), "run", "--with", "e2b", **env)
        assert where(workspace, **s3) == ["daytona", "e2b"]
        # Of two that only --with names, the first; of Metaflow's own, too.
        workspace.run(written("@daytona"), "run", "--with", "e2b", "--with", "daytona", "--with", "batch", **env)
        assert where(workspace, **s3) == ["daytona", "e2b"]


def test_batch_in_the_code_and_with_sandbox(workspace: Workspace, s3: dict[str, str], written: Written) -> None:
    """AWS Batch cannot run here; its own refusal shows that the step went there."""
    env = {**s3, "METAFLOW_BATCH_JOB_QUEUE": "queue", "AWS_ENDPOINT_URL_BATCH": "http://127.0.0.1:9"}
    done = workspace.fail(written("@batch(image='python:3.11')"), "run", "--with", "sandbox", **env)
    assert "127.0.0.1:9" in done.output or "AWS Batch" in done.output, done.output
    assert "AttributeError" not in done.output


def test_two_in_the_code_are_refused(workspace: Workspace, written: Written) -> None:
    done = workspace.fail(written("@sandbox\n    @e2b"), "run")
    assert "@sandbox" in done.output
    assert "one place only" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("spec", ["sandbox", "e2b"])
def test_a_step_is_kept_out(workspace: Workspace, s3: dict[str, str], written: Written, spec: str) -> None:
    """It needs no key either; the other step would, so that is kept out by a name that is its own."""
    flow = written("@sandbox(disabled=True)")
    if spec == "e2b":
        done = workspace.fail(flow, "run", "--with", spec, **s3)
        assert "export E2B_API_KEY=" in done.output
        path = workspace.root / "pair.py"
        path.write_text(
            path.read_text().replace("    @step\n    def end", "    @e2b(disabled=True)\n    @step\n    def end")
        )
    workspace.run(flow, "run", "--with", spec, **s3)
    assert where(workspace, **s3) == ["plain", "local" if spec == "sandbox" else "plain"]


EATS = "data = [b'x' * (1 << 20) for _ in range(400)]"


def test_resources_are_a_wish_on_this_machine(workspace: Workspace, written: Written) -> None:
    """Less memory than the step takes, and a GPU: a plain run does not mind."""
    done = workspace.run(written("@resources(memory=100, gpu=1)", EATS), "run", "--with", "sandbox")
    assert where(workspace) == ["local", "local"]
    assert "wishes for gpu=1" in done.output


def test_resources_need_no_control_groups(workspace: Workspace, written: Written) -> None:
    """As for an ordinary user without a session of systemd."""
    only_for("root", "only root can hide the control groups")
    hide = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    flow = written("@resources(cpu=2)")
    command = ["unshare", "-m", "sh", "-c", hide, "sh", sys.executable, flow, "run", "--with", "sandbox"]
    done = subprocess.run(
        command, cwd=workspace.root, env=workspace.env, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert where(workspace) == ["local", "local"]


COMMANDS = [
    ["show"],
    ["check"],
    ["logs", "1/start"],
    ["dump", "1/start"],
    ["tag", "list"],
    ["argo-workflows", "--help"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_that_start_nothing_need_no_key(workspace: Workspace, written: Written, words: list[str]) -> None:
    done = workspace.popen(written("@e2b"), *words)
    output, _ = done.communicate(timeout=240)
    assert "E2B_API_KEY" not in output
    assert "datastore" not in output or "needs a remote" not in output
    assert "Sandbox error" not in output
    if words[0] in ("show", "check", "argo-workflows"):
        assert done.returncode == 0, output


@pytest.mark.parametrize("name", ["LEASE_SECONDS", "CREATE_SECONDS", "INFRA_RETRIES"])
def test_a_number_that_is_none(workspace: Workspace, written: Written, name: str) -> None:
    flow = written("@sandbox")
    done = workspace.fail(flow, "run", **{f"METAFLOW_SANDBOX_{name}": "abc"})
    assert f"METAFLOW_SANDBOX_{name}=abc" in done.output
    assert f"unset METAFLOW_SANDBOX_{name}" in done.output
    assert "Traceback" not in done.output
    workspace.run(flow, "show", **{f"METAFLOW_SANDBOX_{name}": "abc"})
