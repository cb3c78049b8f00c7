"""``@sandbox(gpu=1)`` and ``@resources(gpu=1)`` on a made-up machine with a GPU (tests/support/gpu.py)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import ensure_base, load_base_lock
from px.store.objects import Store
from tests.support import gpu

from .conftest import Workspace
from .test_local import artifacts

FLOW = """
import os
from metaflow import *

def seen():
    nodes = [name for name in os.listdir("/dev") if name.startswith("nvidia")]
    return sorted(nodes), os.environ.get("LD_LIBRARY_PATH"), os.path.exists("/run/px-gpu/lib/libcuda.so.1")

class GpuFlow(FlowSpec):
    @environment(vars={"LD_LIBRARY_PATH": "/mine"})
    @sandbox(gpu=1)
    @step
    def start(self):
        self.seen = seen()
        self.next(self.middle)

    @resources(gpu=1)
    @step
    def middle(self):
        self.seen = seen()
        self.next(self.end)

    @step
    def end(self):
        self.seen = seen()

if __name__ == "__main__":
    GpuFlow()
"""


@pytest.mark.slow
def test_steps_get_the_gpus_that_they_ask_for(workspace: Workspace, sandbox_home: Home, tmp_path: Path) -> None:
    (workspace.root / "flow.py").write_text(FLOW)
    base = ensure_base(Store(sandbox_home), load_base_lock("debian-12", host_architecture()))
    machine = tmp_path / "python"
    command = gpu.made_up(tmp_path, base.tree, ("nvidia0", "nvidia1"))
    words = " ".join(map(shlex.quote, [*command[:-1], "--chdir", str(workspace.root), "--", sys.executable]))
    machine.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    machine.chmod(0o755)
    workspace.python, plain = str(machine), workspace.python
    workspace.run(str(workspace.root / "flow.py"), "run", "--with", "sandbox")
    workspace.python = plain
    steps = {step: artifacts(workspace, "GpuFlow", step, ["seen"])["seen"] for step in ("start", "middle", "end")}
    given = ["nvidia-uvm", "nvidia0", "nvidiactl"]
    assert steps["start"] == [given, "/mine:/run/px-gpu/lib", True]
    assert steps["middle"] == [given, "/run/px-gpu/lib", True]
    assert steps["end"] == [[], None, False]
