"""Signals, and who dies with whom; test_terminal.py has those of a terminal."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.engines.conftest import Driver, children, eventually, kill, processes

# Not one long sleep: Python sleeps through a signal that comes between its last look and the sleep.
WAIT = "[time.sleep(0.02) for _ in range(3000)]"


def mark() -> str:
    """A number of seconds to sleep that no other test sleeps."""
    return f"{100_000 + secrets.randbelow(800_000)}"


@contextmanager
def running(box: Driver, *argv: str, **fields: object) -> Iterator[subprocess.Popen[str]]:
    """A target that has printed its first line."""
    process = box.start(*argv, **fields)  # type: ignore[arg-type]
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("among_threads", [False, True])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_to_px_reach_the_target_which_may_clean_up(box: Driver, name: str, among_threads: bool) -> None:
    code = (
        f"import signal, sys, time; signal.signal(signal.{name}, lambda *a: (print('cleaned up'), sys.exit(5)));"
        f"print('ready', flush=True); {WAIT}"
    )
    with running(box, "python3", "-c", code, among_threads=among_threads) as process:
        process.send_signal(getattr(signal, name))
        out, _ = process.communicate(timeout=30)
        assert (out, process.returncode) == ("cleaned up\n", 5)


@pytest.mark.parametrize("among_threads", [False, True])
def test_every_signal_reaches_the_target_any_number_of_times(box: Driver, among_threads: bool) -> None:
    """As gunicorn does: SIGHUP loads the configuration again, and SIGTERM ends it."""
    code = (
        "import os, signal, sys, time\n"  # print() in a handler fails if the next signal comes before it has returned
        "signal.signal(signal.SIGHUP, lambda *a: os.write(1, b'reloaded\\n'))\n"
        "signal.signal(signal.SIGUSR1, lambda *a: os.write(1, b'logs\\n'))\n"
        "signal.signal(signal.SIGTERM, lambda *a: (os.write(1, b'bye\\n'), sys.exit(3)))\n"
        f"print('ready', flush=True); {WAIT}"
    )
    with running(box, "python3", "-c", code, among_threads=among_threads) as process:
        assert process.stdout is not None
        for name, answer in (("HUP", "reloaded"), ("HUP", "reloaded"), ("USR1", "logs"), ("HUP", "reloaded")):
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert process.stdout.readline() == f"{answer}\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert (out, process.returncode) == ("bye\n", 3)


def test_a_target_without_a_handler_ends_by_the_signal(caller: Driver) -> None:
    with running(caller, "sh", "-c", "echo ready; exec sleep 60") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143


def test_kill_9_of_px_ends_everything_in_the_sandbox(box: Driver) -> None:
    seconds = mark()
    with running(box, "sh", "-c", f"setsid sleep {seconds} & sleep {seconds} & echo ready; wait") as process:
        eventually("two processes", lambda: len(processes(seconds)) == 2)
        process.kill()
        eventually("the end of the sandbox", lambda: not processes(seconds))


def test_kill_9_of_bubblewrap_ends_everything_and_px_says_137(box: Driver) -> None:
    seconds = mark()
    with running(box, "sh", "-c", f"echo ready; sleep {seconds}; true") as process:
        for child in children(process.pid):
            kill(child)
        assert process.wait(30) == 137
        eventually("the end of the sandbox", lambda: not processes(seconds))


def test_kill_9_of_the_target_is_137(caller: Driver) -> None:
    seconds = mark()
    with running(caller, "sh", "-c", f"echo ready; exec sleep {seconds}") as process:
        [target] = eventually("the target", lambda: processes(seconds))
        kill(target)
        assert process.wait(30) == 137


def test_orphans_end_with_the_target(box: Driver) -> None:
    seconds = mark()
    done = box.run("sh", "-c", f"setsid sleep {seconds} >/dev/null 2>&1 & exit 6")
    assert done.returncode == 6
    assert processes(seconds) == []


def test_zombies_are_reaped(caller: Driver) -> None:
    code = (
        "import os, subprocess, time\n"
        "for _ in range(20): subprocess.run(['sh', '-c', 'sleep 0.01 &'])\n"
        "for _ in range(1000):\n"
        "    left = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\n"
        "    if len(left) == 2: break\n"
        "    time.sleep(0.01)\n"
        "print(left == [1, os.getpid()])"
    )
    assert caller.python(code).stdout == "True\n"
