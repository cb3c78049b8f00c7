"""The launch server and its clients: a fork that looks, to whoever started the client, like the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins import launch_client
from tests.support.needs import only_for


@pytest.fixture(autouse=True)
def _on_linux() -> None:
    only_for("Linux", "launchers are forked there only")


# A run: it starts a server, says how a client is started, and waits.
RUN = """
import os, signal, sys, time
from metaflow_extensions.sandbox.plugins import launch_server

ready = []

def launch(command):
    def ended(number, frame):
        open(command[1], "w").write(str(number))
        sys.exit(3)
    signal.signal(signal.SIGTERM, ended)
    print(command[0], ready, os.environ.get("MINE"), os.getcwd(), sys.stdin.read(), flush=True)
    print("error", file=sys.stderr, flush=True)
    if command[0].isdecimal():
        os.kill(os.getpid(), int(command[0]))
    if command[0] == "raise":
        raise RuntimeError("on purpose")
    if command[0] == "hang":
        for _ in range(3000):  # one long sleep could sleep through a signal that comes just before it
            time.sleep(0.02)
    sys.exit(7)

server = launch_server.start(lambda: ready.append("prepared"), launch)
print("\\0".join(server.command([])), flush=True)
sys.stdin.read()
server.stop(wait=True)
print("stopped", flush=True)
"""


class Run:
    """A run with its server, and the way to start clients."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.command = self.process.stdout.readline().rstrip("\n").split("\0")

    def client(self, *command: str, **options: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(  # type: ignore[call-overload]
            [*self.command, *command], stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def run() -> Iterator[Run]:
    found = Run()
    yield found
    found.close()


def until(path: Path) -> str:
    end = time.monotonic() + 30
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    return path.read_text()


def test_streams_environment_directory_and_exit_code_are_the_clients(run: Run, tmp_path: Path) -> None:
    client = run.client("plain", "", cwd=tmp_path, env={**os.environ, "MINE": "value"})
    out, err = client.communicate("input")
    assert out == f"plain ['prepared'] value {tmp_path} input\n"
    assert err == "error\n"
    assert client.returncode == 7


def test_one_task_does_not_see_another(run: Run) -> None:
    first, second = run.client("plain", "", env={"MINE": "1"}), run.client("plain", "", env={})
    assert " 1 " in first.communicate("")[0]
    assert " None " in second.communicate("")[0]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_ends_the_client_too(run: Run, number: int) -> None:
    client = run.client(str(int(number)), "")
    assert client.communicate("")[1] == "error\n"
    assert client.returncode == -number


def test_an_exception_is_shown_and_is_a_failure(run: Run) -> None:
    client = run.client("raise", "")
    assert "RuntimeError: on purpose" in client.communicate("")[1]
    assert client.returncode == 1


def test_a_signal_to_the_client_reaches_the_launcher(run: Run, tmp_path: Path) -> None:
    client = run.client("hang", str(tmp_path / "ended"))
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.close()
    client.stdout.readline()
    client.send_signal(signal.SIGTERM)
    assert client.wait(timeout=30) == 3
    assert until(tmp_path / "ended") == str(int(signal.SIGTERM))
    client.stdin = None
    client.communicate()


@pytest.mark.parametrize("who", ["client", "run"])
def test_whoever_is_killed_the_launcher_is_told(run: Run, tmp_path: Path, who: str) -> None:
    client = run.client("hang", str(tmp_path / "ended"))
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.close()
    client.stdout.readline()
    (client if who == "client" else run.process).kill()
    assert until(tmp_path / "ended") == str(int(signal.SIGTERM))
    client.wait(timeout=30)
    client.stdin = None
    client.communicate()


def test_the_server_ends_with_the_run(run: Run) -> None:
    out, _ = run.process.communicate("")
    assert out == "stopped\n"
    client = run.client(sys.executable, "-c", "print('by itself')")
    assert client.communicate("")[0] == "by itself\n", "without a server the command runs as it is"


def test_without_a_server_the_command_runs_as_it_is() -> None:
    command = [sys.executable, launch_client.__file__, "px-launch-none", sys.executable, "-c", "raise SystemExit(5)"]
    assert subprocess.run(command, check=False).returncode == 5
