"""pytest's byte code: here and in the sandbox it lies in the same directory, and must not be mixed up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from px.sandbox.pytests import CODE, PLUGIN, kept_apart
from px.warm.record import BuiltSandbox
from px.warm.spec import RunSpec

TEST = "def test_where():\n    assert test_where.__code__.co_filename == __file__\n"
BUILT = BuiltSandbox({}, {}, "", "", {}, (), python="python3.13")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("/opt/px/env/bin/pytest", "-q"), ("/opt/px/env/bin/pytest", "-p", PLUGIN, "-q")),
        (("/x/python3", "-m", "pytest", "a.py"), ("/x/python3", "-m", "pytest", "-p", PLUGIN, "a.py")),
    ],
)
def test_pytest_gets_the_plugin(argv: tuple[str, ...], expected: tuple[str, ...]) -> None:
    spec = kept_apart(RunSpec((), argv, {}), BUILT)
    assert spec.argv == expected
    assert [f.target for f in spec.files] == [f"/opt/px/env/lib/python3.13/site-packages/{PLUGIN}.py"]


@pytest.mark.parametrize("argv", [("python", "-m", "unittest"), ("/app/run-pytest",), ("python",)])
def test_nothing_else_does(argv: tuple[str, ...]) -> None:
    assert kept_apart(RunSpec((), argv, {}), BUILT) == RunSpec((), argv, {})


def run(root: Path, *flags: str, **env: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags, "test_it.py"]
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHONDONTWRITE"))}
    return subprocess.run(command, cwd=root, env={**variables, **env}, capture_output=True, check=False).returncode


def test_both_keep_their_own(tmp_path: Path) -> None:
    """Before its release 9.2, pytest believed the paths that it found there."""
    here, there, plugin = tmp_path / "here", tmp_path / "app", tmp_path / "plugin"
    here.mkdir()
    (here / "test_it.py").write_text(TEST)
    plugin.mkdir()
    (plugin / f"{PLUGIN}.py").write_text(CODE)
    assert run(here) == 0
    here.rename(there)  # as the sandbox has it
    assert run(there, "-p", PLUGIN, PYTHONPATH=str(plugin)) == 0
    names = sorted(path.name for path in there.glob("__pycache__/test_it.*-pytest-*.pyc"))
    assert [name.endswith("-px.pyc") for name in names] == [True, False]
