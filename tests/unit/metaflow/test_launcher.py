"""How a launcher ends: as its task did, and always."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from metaflow_extensions.sandbox.plugins.local import launcher

PROGRAM = "import runpy, sys; runpy.run_path(sys.argv[1])['end'](int(sys.argv[2]))"


# 147 to 150 would be signals that stop a process, 255 one that does not exist; a step may exit with any of them.
@pytest.mark.parametrize("code", [0, 3, 137, 145, 147, 148, 255])
def test_an_exit_code_stays_one(code: int) -> None:
    assert _ended(code) == code


def test_a_segmentation_fault_stays_one() -> None:
    assert _ended(128 + signal.SIGSEGV) == -signal.SIGSEGV


def _ended(code: int) -> int:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, launcher.__file__, str(code)]
    return subprocess.run(command, check=False, timeout=60).returncode
