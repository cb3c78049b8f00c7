"""A Ray cluster of two nodes on this machine, each whole in the project's sandbox: docs/how-to/run-on-ray.md."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from px.home import Home
from tests.support.needs import need
from tests.support.px import PX, run_px

MANIFEST = """
[project]
name = "work"
version = "1"
requires-python = ">=3.11,<3.12"
dependencies = ["ray[default]"]
"""
# Each task waits until both nodes have one: a node that is busy for long would otherwise leave all tasks to the other.
JOB = """
import os
import sys
import time

import ray

ray.init(address="auto")


@ray.remote
class Meeting:
    def __init__(self):
        self.nodes = set()

    def arrive(self, node):
        self.nodes.add(node)
        return len(self.nodes)


@ray.remote(scheduling_strategy="SPREAD", num_cpus=1)
def work(meeting):
    node = ray.get_runtime_context().get_node_id()
    while ray.get(meeting.arrive.remote(node)) < 2:
        time.sleep(0.1)
    return node, sys.prefix, os.path.exists("HOST")


meeting = Meeting.options(num_cpus=0).remote()
found = ray.get([work.remote(meeting) for _ in range(4)])
print("nodes", len({node for node, *_ in found}), *{prefix for _, prefix, _ in found}, any(seen for *_, seen in found))
"""
TOGETHER = (
    *("--node-ip-address=127.0.0.1", "--num-cpus=2", "--object-store-memory=80000000", "--block"),
    *("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"),
)


@pytest.mark.slow
@pytest.mark.network
def test_jobs_run_in_the_sandbox_on_both_nodes(tmp_path: Path, warm_home: Home) -> None:
    need("bubblewrap")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(MANIFEST)
    (project / "job.py").write_text(JOB.replace("HOST", str(project)))
    home = str(warm_home.root)
    run_px("sync", "--sandbox", cwd=project, PX_HOME=home)
    gcs, dashboard, client = _free_ports(3)
    address = f"http://127.0.0.1:{dashboard}"
    ports = (f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}")
    submit = ("run", "--sandbox", "ray", "job", "submit", "--address", address, "--working-dir", ".", "--")
    with ExitStack() as nodes:
        head = nodes.enter_context(_node(project, home, "--head", *ports))
        _wait_for(f"{address}/api/version", head)
        nodes.enter_context(_node(project, home, f"--address=127.0.0.1:{gcs}"))
        done = run_px(*submit, "python", "job.py", cwd=project, PX_HOME=home)
        assert "nodes 2 /opt/px/env False" in done.stdout
        failed = run_px(*submit, "python", "-c", "raise SystemExit(3)", cwd=project, PX_HOME=home, check=False)
        assert failed.returncode == 1
    left = subprocess.run(["pgrep", "-f", f"--port={gcs}"], capture_output=True, text=True, check=False)
    assert left.stdout == ""  # the sandboxes ended with px


@contextmanager
def _node(project: Path, home: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One node, until the block ends."""
    command = [str(PX), "run", "--sandbox", "-e", "RAY_USAGE_STATS_ENABLED=0", "ray", "start", *options, *TOGETHER]
    with (project.parent / f"{options[0].strip('-')[:7]}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=project, env={"PX_HOME": home}, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=120)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, "the head of the cluster ended"
            assert time.monotonic() < end, "the head of the cluster does not answer"
            time.sleep(0.2)
        else:
            return


def _free_ports(count: int) -> list[int]:
    with ExitStack() as kept:
        probes = [kept.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
