"""What a sandboxed step tries on the run on the host: the fork server's socket, and the metadata service's token."""

from __future__ import annotations

import subprocess
import sys

from .conftest import Workspace
from .test_local import artifacts

FLOW = """
import os, socket
from metaflow import FlowSpec, Parameter, step

class AttackFlow(FlowSpec):
    target = Parameter("target", default="")

    @step
    def start(self):
        self.reached, self.environment = [], dict(os.environ)
        with open("/proc/net/unix") as f:
            rows = [line.split() for line in f.read().splitlines()[1:]]
        listed = [row[7] for row in rows if len(row) > 7]
        self.listed = self.target in listed
        for name in [self.target, *(name for name in listed if name.startswith("/"))]:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(name)
                    self.reached.append(name)
                except OSError:
                    pass
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    AttackFlow()
"""
# A run with a fork server, which waits.
RUN = """
import sys
from metaflow_extensions.sandbox.plugins.remote.fork_server import ForkServer

server = ForkServer.start("none", "local")
print(server.command([sys.executable])[4], flush=True)
sys.stdin.read()
server.stop()
"""


def test_a_step_with_the_network_on_does_not_reach_the_fork_server(workspace: Workspace) -> None:
    """It is told the path, and tries whatever /proc/net/unix lists; the network is the host's."""
    flow = workspace.root / "attack.py"
    flow.write_text(FLOW)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", RUN], env=workspace.env, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdout is not None
        target = run.stdout.readline().strip()
        workspace.run(str(flow), "run", "--with", "sandbox", "--target", target)
        run.communicate("")
    seen = artifacts(workspace, "AttackFlow", "start", ["reached", "listed"])
    assert seen == {"reached": [], "listed": True}, "it knows that there is one, and cannot connect"


def test_the_metadata_services_token_stays_outside(workspace: Workspace) -> None:
    """With local metadata a step has no use for it; with the service, its reports go there."""
    flow = workspace.root / "attack.py"
    flow.write_text(FLOW)
    planted = {
        "METAFLOW_SERVICE_AUTH_KEY": "planted-token-5d2e",
        "METAFLOW_SERVICE_HEADERS": '{"x-api-key": "planted-token-5d2e"}',
        "METAFLOW_SERVICE_URL": "http://127.0.0.1:9",
    }
    workspace.run(str(flow), "--metadata", "local", "run", "--with", "sandbox", **planted)
    seen = artifacts(workspace, "AttackFlow", "start", ["environment"])
    assert "planted-token-5d2e" not in str(seen)
