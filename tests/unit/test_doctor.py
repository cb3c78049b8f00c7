"""The last line of ``px doctor``: what to do first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from px.workflow.doctor import FAIL, OK, WARN, Check, first_step
from tests.support.px import run_px

WORKS = Check("engine bubblewrap", OK, "works")
BROKEN = Check("engine bubblewrap", WARN, "user namespaces are refused", ("px run --sandbox --engine docker",))
NO_DOCKER = Check("engine docker", WARN, "there is none", ("sudo apt-get install docker.io",))
NAMESPACES = Check("user namespaces", WARN, "refused", ("sudo sysctl -w kernel.unprivileged_userns_clone=1",))
HOME = Check("px home", FAIL, "/x: Read-only file system", ("export PX_HOME=DIR",))


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ([HOME, NAMESPACES, BROKEN], "Do this first (px home): export PX_HOME=DIR"),
        ([NAMESPACES, BROKEN, NO_DOCKER], f"Do this first (user namespaces): {NAMESPACES.fix[0]}"),
        ([BROKEN, NO_DOCKER], f"Do this first (engine bubblewrap): {BROKEN.fix[0]}"),
        (
            [NAMESPACES, BROKEN, Check("engine docker", OK, "works")],
            "px works here. Start a project: px init my-project",
        ),
        ([WORKS, NO_DOCKER], "px works here. Start a project: px init my-project"),
        ([Check("uv", FAIL, "it does not start")], "See to this first: uv: it does not start"),
    ],
)
def test_the_worst_comes_first(checks: list[Check], said: str, tmp_path: Path) -> None:
    assert first_step(checks, tmp_path) == said


def test_in_a_project_it_is_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\n')
    assert first_step([WORKS], tmp_path).endswith("px run --sandbox python")


def test_the_command_ends_with_it(tmp_path: Path) -> None:
    shown = run_px("doctor", cwd=tmp_path, check=False).stdout
    found = json.loads(run_px("doctor", "--json", cwd=tmp_path, check=False).stdout)
    assert shown.rstrip().splitlines()[-1] == found["details"]["first"]
