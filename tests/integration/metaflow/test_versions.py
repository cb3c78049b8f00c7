"""The oldest and the newest versions of Metaflow and of the SDKs that we say we work with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO

from .conftest import Server, Workspace
from .test_local import artifacts

EXTRAS = ("metaflow", "e2b", "daytona")
SOURCES = ("src", "bin", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module", params=["lowest-direct", "highest"])
def versions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with px and these versions, which goes before what is installed.

    Installed as users do it: before 2.19 Metaflow does not find an extension that is installed for editing.
    """
    root = tmp_path_factory.mktemp("versions")
    (root / "px").mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (REPO / name).is_dir() else shutil.copy
        copy(REPO / name, root / "px" / name)
    words = ["--quiet", "--python", sys.executable, "--target", str(root / "site"), "--resolution", request.param]
    wanted = f"px-sandbox[{','.join(EXTRAS)}] @ {(root / 'px').as_uri()}"
    subprocess.run(["uv", "pip", "install", *words, wanted], check=True)
    return root / "site"


@pytest.mark.slow
@pytest.mark.network
def test_a_flow_here_and_at_a_provider(workspace: Workspace, fresh: Server, s3: dict[str, str], versions: Path) -> None:
    print(sorted(p.name for p in versions.glob("*.dist-info")))  # for whoever reads a failure
    path = {"PYTHONPATH": str(versions)}
    workspace.run("small.py", "run", "--with", "sandbox", **path)
    assert artifacts(workspace, "SmallFlow", "start", ["depth"]) == {"depth": 4}
    env = {**s3, **fresh.env, **path, "METAFLOW_SANDBOX_LEASE_SECONDS": "7200"}
    workspace.run("small.py", "run", "--with", f"{fresh.kind}:cpu=2,memory=1024", **env)
    assert artifacts(workspace, "SmallFlow", "start", ["depth", "keys"], **s3) == {"depth": 4, "keys": []}
    logs = workspace.ask("Flow('SmallFlow').latest_run['start'].task.stdout", **s3)
    assert logs.endswith("first line\nsecond line\n")
    # A failure of the provider and one of the step are told apart by the SDK's own exceptions.
    fresh.faults(fail_create=1, fail_status=503)
    done_ = workspace.fail("ends.py", "run", "--with", fresh.kind, "--how", "exit", **env)
    assert "Trying again" in done_.output
    assert "begun" in done_.output
    listed = subprocess.run(
        [sys.executable, "-m", "px", "sandbox", "ps", "--backend", fresh.kind],
        env={**workspace.env, **fresh.env, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
