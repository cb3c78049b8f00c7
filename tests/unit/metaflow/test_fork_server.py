"""The fork server and its stand-ins: to whoever started a stand-in, the fork looks like the command itself."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins.remote import stand_in
from tests.support.needs import only_for


@pytest.fixture(autouse=True)
def _on_linux() -> None:
    only_for("Linux", "there is a fork server there only")


# A run: it starts a server, says how a stand-in is started, and waits.  The server has nothing to import: there is no
# such backend, and what fails while it imports is left to the trampolines.
RUN = """
import sys
from metaflow_extensions.sandbox.plugins.remote.fork_server import ForkServer

server = ForkServer.start("none", "local")
print("\\0".join(server.command([sys.executable])), flush=True)
sys.stdin.read()
server.stop()
print("stopped", flush=True)
"""

# What stands in the place of a flow.
FLOW = """
import os, signal, sys, time
from beside import NAME

def ended(number, frame):
    open(sys.argv[2], "w").write(str(number))
    sys.exit(3)

signal.signal(signal.SIGTERM, ended)
print(NAME, sys.argv[1], os.environ.get("MINE"), os.getcwd(), sys.stdin.read(), flush=True)
print("error", file=sys.stderr, flush=True)
if sys.argv[1].isdecimal():
    os.kill(os.getpid(), int(sys.argv[1]))
if sys.argv[1] == "raise":
    raise RuntimeError("on purpose")
if sys.argv[1] == "hang":
    for _ in range(3000):  # one long sleep could sleep through a signal that comes just before it
        time.sleep(0.02)
sys.exit(7)
"""


class Run:
    """A run with its server, and the way to start stand-ins."""

    def __init__(self, flows: Path, home: Path) -> None:
        self.flow, self.home = flows / "flow.py", home
        self.flow.write_text(FLOW)
        (flows / "beside.py").write_text("NAME = __name__")
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            env={**os.environ, "PX_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.command = self.process.stdout.readline().rstrip("\n").split("\0")
        self.socket = Path(self.command[4])

    def stand_in(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(  # type: ignore[call-overload]
            [*self.command, "-u", self.flow, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    # The path of a socket must be short, and that of a test's own directory is not.  A run that was killed leaves its
    # server to clean up, at the same time as this does.
    with tempfile.TemporaryDirectory(prefix="px-", ignore_cleanup_errors=True) as home:
        found = Run(tmp_path, Path(home))
        yield found
        found.close()


def begun(process: subprocess.Popen[str]) -> None:
    """Wait for the first line of a flow that hangs."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdin = None
    assert "hang" in process.stdout.readline()


def until(path: Path) -> str:
    end = time.monotonic() + 30
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    return path.read_text()


def test_streams_environment_directory_and_exit_code_are_the_stand_ins(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    process = run.stand_in("plain", "", cwd=directory, env={**os.environ, "MINE": "a=value"})
    out, err = process.communicate("input")
    assert out == f"beside plain a=value {directory} input\n"
    assert err == "error\n"
    assert process.returncode == 7


def test_one_task_does_not_see_another(run: Run) -> None:
    first, second = run.stand_in("plain", "", env={"MINE": "1"}), run.stand_in("plain", "", env={})
    assert " 1 " in first.communicate("")[0]
    assert " None " in second.communicate("")[0]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_ends_the_stand_in_too(run: Run, number: int) -> None:
    process = run.stand_in(str(int(number)), "")
    assert process.communicate("")[1] == "error\n"
    assert process.returncode == -number


def test_an_exception_is_shown_and_is_a_failure(run: Run) -> None:
    process = run.stand_in("raise", "")
    assert "RuntimeError: on purpose" in process.communicate("")[1]
    assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("who", ["stand-in", "run"])
def test_whoever_is_ended_the_trampoline_is_told(run: Run, tmp_path: Path, who: str, number: int) -> None:
    process = run.stand_in("hang", str(tmp_path / "ended"))
    begun(process)
    (process if who == "stand-in" else run.process).send_signal(number)
    assert until(tmp_path / "ended") == str(int(signal.SIGTERM))
    process.wait(timeout=30)
    process.communicate()


def test_the_server_ends_with_the_run_and_leaves_nothing(run: Run) -> None:
    out, _ = run.process.communicate("")
    assert out == "stopped\n"
    assert list((run.home / "sandbox").iterdir()) == []
    process = run.stand_in("plain", "")
    assert process.communicate("")[0].startswith("beside plain "), "without a server the command runs as it is"
    assert process.returncode == 7


def test_only_this_user_can_reach_the_server(run: Run) -> None:
    assert stat.S_IMODE(run.socket.parent.stat().st_mode) == 0o700
    assert run.socket.is_relative_to(run.home / "sandbox")


def test_no_abstract_socket(run: Run) -> None:
    """A sandbox with the host's network would find one in /proc/net/unix, and could connect."""
    # Until it serves, it imports: files that it reads come and go while its descriptors are looked at.
    assert run.stand_in("plain", "").communicate("")[0].startswith("beside plain ")
    servers = [p for p in Path("/proc").glob("[0-9]*") if _is_server(p, run.process.pid)]
    assert len(servers) == 1
    own = [link for fd in (servers[0] / "fd").iterdir() if (link := _link(fd))]
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    names = [row[7] for row in rows if len(row) > 7 and f"socket:[{row[6]}]" in own]
    assert set(names) == {str(run.socket)}, "connections that it accepted have the same name"


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def _is_server(process: Path, parent: int) -> bool:
    try:
        stat = (process / "stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) == parent and b"fork_server" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_process_of_another_namespace_gets_nothing(run: Run, tmp_path: Path) -> None:
    """If a sandbox reached the socket, its command, environment and directory would be a process of the host."""
    only_for("root", "only root can make a mount namespace without a user namespace")
    run.flow.write_text("import os\nprint(os.readlink('/proc/self/ns/mnt'))\n")
    command = ["unshare", "-m", *run.command, "-u", str(run.flow)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != os.readlink("/proc/self/ns/mnt"), "the server ran it on the host"


def test_whoever_says_something_else_gets_nothing(run: Run) -> None:
    """No descriptors, too much, or a client that is gone at once: the next task is served."""
    for data in (b"", b"x", b"\0" * 100_000):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(run.socket))
            rude.settimeout(30)
            rude.sendall(data)
            rude.shutdown(socket.SHUT_WR)
            assert stand_in.ACCEPTED not in rude.recv(10)
    process = run.stand_in("plain", "")
    process.communicate("", timeout=60)
    assert process.returncode == 7


def test_many_silent_clients_keep_nobody_waiting(run: Run) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    try:
        for each in silent:
            each.connect(str(run.socket))
        process = run.stand_in("plain", "")
        process.communicate("", timeout=60)
        assert process.returncode == 7
    finally:
        for each in silent:
            each.close()


def test_whoever_connects_and_says_nothing_keeps_nobody_waiting(run: Run) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(run.socket))
        process = run.stand_in("plain", "")
        process.communicate("", timeout=30)
        assert process.returncode == 7


def test_without_a_server_the_command_runs_as_it_is(tmp_path: Path) -> None:
    command = [sys.executable, stand_in.__file__, str(tmp_path / "none"), sys.executable, "-c", "raise SystemExit(5)"]
    assert subprocess.run(command, check=False).returncode == 5
