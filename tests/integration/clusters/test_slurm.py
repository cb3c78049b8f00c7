"""``srun px run --sandbox …`` on two nodes that share a directory: docs/how-to/run-on-slurm.md."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.clusters.slurm import slurm
from tests.support.needs import need
from tests.support.px import PX, run_px

MANIFEST = """
[project]
name = "job"
version = "1"
requires-python = ">=3.11,<3.12"
dependencies = ["packaging"]
"""
TASK = "import sys, packaging; print('task', sys.argv[1])"
# An argument that no other process has.
SLEEPS = "import time; print('started', flush=True); time.sleep(1000)"


@pytest.mark.slow
@pytest.mark.network
def test_tasks_on_two_nodes_share_a_store(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(MANIFEST)
    run_px("sync", "--sandbox", cwd=project, PX_HOME=str(warm_home.root))  # writes the lock
    home = tmp_path / "empty"
    with slurm(tmp_path / "slurm") as cluster:
        script = f'echo node $SLURMD_NODENAME; exec {PX} run --sandbox python -c "{TASK}" $SLURM_PROCID'
        done = cluster.run("srun", "-N2", "-n12", "sh", "-c", script, cwd=project, PX_HOME=str(home))
        assert done.returncode == 0, done.stderr
        lines = Counter(done.stdout.splitlines())
        assert {line for line in lines if line.startswith("task")} == {f"task {n}" for n in range(12)}
        assert {line for line in lines if line.startswith("node")} == {"node one", "node two"}
        # One of them built, and the others waited for it.
        assert len(re.findall(r"Unpacking \d+ Debian packages", done.stderr)) == 1
        assert "that is making the base debian-12" in done.stderr
        run_px("store", "verify", cwd=project, PX_HOME=str(home))

        # The exit code is the target's.
        ends = (str(PX), "run", "--sandbox", "python", "-c", "raise SystemExit(7)")
        assert cluster.run("srun", "-n1", *ends, cwd=project, PX_HOME=str(home)).returncode == 7

        mark = f"px-test-{tmp_path.name}"
        sleeper = ("srun", "-n1", "-J", mark, str(PX), "run", "--sandbox", "python", "-c", SLEEPS, mark)
        with cluster.start(*sleeper, cwd=project, PX_HOME=str(home)) as started:
            assert started.stdout is not None
            assert started.stdout.readline() == "started\n"
            assert cluster.run("scancel", "--name", mark, cwd=project).returncode == 0
            assert started.wait(timeout=120) != 0
        _wait_until_gone(mark)


def _wait_until_gone(mark: str) -> None:
    """A cancelled job leaves nothing behind; what its daemon is about to end may take a moment."""
    end = time.monotonic() + 60
    while left := subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout:
        assert time.monotonic() < end, left
        time.sleep(0.1)
