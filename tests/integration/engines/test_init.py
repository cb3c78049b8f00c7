"""px-init as it is shipped: built from the source beside it, for both machines, and at work on the other one."""

from __future__ import annotations

import os
import signal
import socket
import struct
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


def program(machine: str) -> list[str]:
    """px-init without a sandbox; the other machine's by emulation."""
    if machine == os.uname().machine:
        return [str(SHIPPED / machine)]
    need("qemu")
    return [f"qemu-{machine}-static", str(SHIPPED / machine)]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_it_runs_a_program_and_ends_as_that_does(machine: str) -> None:
    """Started, descriptors closed, code passed on."""
    command = program(machine)
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


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_it_makes_a_terminal_and_says_when_the_program_stops(machine: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = "test -t 0 && test -t 1 && test -t 2 && kill -STOP $$; exit 6"
    with ours, theirs:
        process = subprocess.Popen(
            [*program(machine), f"{theirs.fileno()}t", "sh", "-c", script],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        assert ours.recv(16) == b"R"
        event, [terminal], _, _ = socket.recv_fds(ours, 16, 1)
        assert struct.unpack("=IIii", event) == (3, 0, 0, 0)
        ours.send(b"F")
        assert struct.unpack("=IIii", ours.recv(16)) == (4, 0, signal.SIGSTOP, 0)
        ours.send(b"F")
        assert process.wait(30) == 6
        os.close(terminal)
