"""What the tutorial says about steps that nobody trusts: what they return is loaded by the run, wherever that is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.px import PX

from .conftest import Workspace

FLOW = """
from metaflow import FlowSpec, step

class Returned:
    def __reduce__(self):
        return eval, ("__import__('os').system('touch {marker} 2>/dev/null') and 0 or (['end'], None)",)

class UntrustedFlow(FlowSpec):
    def next(self, *steps, **options):
        super().next(*steps, **options)
        self._transition = Returned()

    @step
    def start(self):
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    UntrustedFlow()
"""
PROJECT = '[project]\nname = "whole"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["metaflow>=2.16"]\n'


@pytest.fixture
def marker(workspace: Workspace, tmp_path: Path) -> Path:
    """A file beside the working directory, which no sandbox sees."""
    (workspace.root / "untrusted.py").write_text(FLOW.format(marker=tmp_path / "marker"))
    return tmp_path / "marker"


def test_the_run_loads_what_a_sandboxed_step_returned(workspace: Workspace, marker: Path) -> None:
    """If this ever fails, Metaflow has become safer than the tutorial says."""
    workspace.run(str(workspace.root / "untrusted.py"), "run", "--with", "sandbox")
    assert marker.exists()


@pytest.mark.slow
@pytest.mark.network
def test_a_whole_run_in_a_sandbox_loads_it_inside(workspace: Workspace, marker: Path) -> None:
    (workspace.root / "pyproject.toml").write_text(PROJECT)
    run = ["run", "--sandbox", "--no-network", "--env", "METAFLOW_USER=me", "python", "untrusted.py", "run"]
    for words in (["sync", "--sandbox"], run):
        done = subprocess.run(
            [PX, *words], cwd=workspace.root, env=workspace.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Done!" in done.stdout + done.stderr
    assert not marker.exists()
