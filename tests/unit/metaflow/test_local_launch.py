"""How the program in front of a task ends: as the task did, and always."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from metaflow_extensions.sandbox.plugins import local_launch

PROGRAM = "import runpy, sys; runpy.run_path(sys.argv[1])['_end'](int(sys.argv[2]))"
TRAMPOLINE = (
    "import sys, metaflow\nfrom metaflow_extensions.sandbox.plugins.sandbox_cli import end\nend(int(sys.argv[1]))"
)


# 147 to 150 would be signals that stop a process, 255 one that does not exist; a step may exit with any of them.
@pytest.mark.parametrize("code", [0, 3, 137, 145, 147, 148, 255])
def test_an_exit_code_stays_one(code: int) -> None:
    assert _ended(code) == code


def test_a_segmentation_fault_stays_one() -> None:
    assert _ended(128 + signal.SIGSEGV) == -signal.SIGSEGV


def test_the_trampoline_ends_in_the_same_way() -> None:
    done = subprocess.run([sys.executable, "-c", TRAMPOLINE, "148"], check=False, timeout=60)
    assert done.returncode == 148


def _ended(code: int) -> int:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, local_launch.__file__, str(code)]
    return subprocess.run(command, check=False, timeout=60).returncode
