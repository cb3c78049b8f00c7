"""Metaflow's features, one by one: plain and sandboxed runs must agree."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from .conftest import Workspace
from .core_flows import FLOWS, Core

ORDINARY = {"large log", "segmentation fault caught", "tag mutation in a step", "resume"}


def outcome(workspace: Workspace, core: Core, *more: str) -> Any:
    (workspace.root / "core.py").write_text(core.source)

    def flow(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "core.py", *arguments, *more]
        return subprocess.run(argv, cwd=workspace.root, env=workspace.env, capture_output=True, text=True, check=False)

    done = flow("run", *core.arguments)
    assert (done.returncode != 0) == core.fails, done.stdout + done.stderr
    if core.then_resume:
        done = flow("resume")
        assert done.returncode == 0, done.stdout + done.stderr
    expression = f"(lambda run: {core.expression})(Flow('CoreFlow').latest_run)"
    return json.loads(json.dumps(workspace.ask(expression)))


@pytest.mark.parametrize(
    "core", [pytest.param(c, id=c.name, marks=() if c.name in ORDINARY else pytest.mark.slow) for c in FLOWS]
)
def test_the_same_plain_and_sandboxed(workspace: Workspace, core: Core) -> None:
    assert outcome(workspace, core, "--with", "sandbox") == outcome(workspace, core)
