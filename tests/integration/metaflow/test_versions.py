"""The oldest and the newest versions of Metaflow and of the SDKs that we say we work with."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPO

from .conftest import Server, Workspace
from .test_local import artifacts

EXTRAS = ("metaflow", "e2b", "daytona")
SOURCES = ("src", "bin", "docs", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module", params=["lowest-direct", "highest"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with px and these versions, installed as users do it."""
    root = tmp_path_factory.mktemp("versions")
    (root / "px").mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (REPO / name).is_dir() else shutil.copy
        copy(REPO / name, root / "px" / name)
    wanted = f"px-sandbox[{','.join(EXTRAS)}] @ {(root / 'px').as_uri()}"
    place = root / "env"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, place], check=True)
    install = ["pip", "install", "--python", place, "--resolution", request.param, wanted]
    subprocess.run([*uv, *install], check=True)
    subprocess.run([*uv, "pip", "list", "--python", place], check=True)  # for whoever reads a failure
    return str(place / "bin" / "python")


@pytest.mark.slow
@pytest.mark.network
def test_a_flow_here_and_at_a_provider(workspace: Workspace, fresh: Server, s3: dict[str, str], python: str) -> None:
    workspace.python = python
    workspace.run("small.py", "run", "--with", "sandbox", "--with", "card:type=sandbox")
    cards = "__import__('metaflow.cards').cards.get_cards(Flow('SmallFlow').latest_run['start'].task, type='sandbox')"
    assert "Running took" in workspace.ask(f"{cards}[0].get()")
    assert artifacts(workspace, "SmallFlow", "start", ["depth"]) == {"depth": 4}
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "7200"}
    workspace.run("small.py", "run", "--with", f"{fresh.kind}:cpu=2,memory=1024", **env)
    assert artifacts(workspace, "SmallFlow", "start", ["depth", "keys"], **s3) == {"depth": 4, "keys": []}
    logs = workspace.ask("Flow('SmallFlow').latest_run['start'].task.stdout", **s3)
    assert logs.endswith("first line\nsecond line\n")
    # A failure of the provider and one of the step are told apart by the SDK's own exceptions.
    fresh.faults(fail_create=1, fail_status=503)
    done = workspace.fail("ends.py", "run", "--with", fresh.kind, "--how", "exit", **env)
    assert done.output.count("begun") == 1
    for what in ("ps", "templates"):
        command = [python, "-m", "px", "sandbox", what, "--backend", fresh.kind]
        asked = {**workspace.env, **fresh.env}
        listed = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
        assert listed.returncode == 0, listed.stderr
