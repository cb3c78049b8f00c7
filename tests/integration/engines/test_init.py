"""px-init as it is shipped: built from the source beside it, for both machines, and at work on the other one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.support.needs import need

SOURCE = REPO / "src/px/engines/init"
SHIPPED = REPO / "src/px/data/init"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_shipped_program_is_the_source(machine: str, tmp_path: Path) -> None:
    need("compilers of px-init")
    subprocess.run([SOURCE / "build.sh", tmp_path], check=True)
    assert (tmp_path / machine).read_bytes() == (SHIPPED / machine).read_bytes(), f"run {SOURCE / 'build.sh'}"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_it_runs_a_program_and_ends_as_that_does(machine: str) -> None:
    """Without a sandbox, and the other machine's by emulation: started, descriptors closed, code passed on."""
    command = [str(SHIPPED / machine)]
    if machine != os.uname().machine:
        need("qemu")
        command = [f"qemu-{machine}-static", *command]
    ours, theirs = os.pipe()
    try:
        done = subprocess.run([*command, str(theirs), "sh", "-c", "exit 7"], pass_fds=(theirs,), check=False)
        assert done.returncode == 7
        assert os.read(ours, 1) == b"R"
        killed = subprocess.run([*command, "--", "sh", "-c", "kill -TERM $$"], check=False)
        assert killed.returncode == 143
        missing = subprocess.run(
            [*command, "--", "no-such-program"], env={"PATH": "/usr/bin"}, capture_output=True, text=True, check=False
        )
        assert (missing.returncode, missing.stderr) == (127, "px: no-such-program: not found in the sandbox\n")
    finally:
        os.close(ours)
        os.close(theirs)
