"""Signals, terminals, and who dies with whom."""

from __future__ import annotations

import os
import pty
import re
import secrets
import select
import signal
import struct
import subprocess
import termios
import time
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


# --- terminals ---------------------------------------------------------------------------------------------------


class Terminal:
    """A pseudo terminal with a sandbox as its foreground process, as a shell would start it."""

    def __init__(self, box: Driver, *argv: str, **fields: object):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            command = box.command(argv, tty=True, **fields)
            os.execvpe(command[0], command, box.environment())

    def expect(self, pattern: str) -> re.Match[str]:
        end = time.monotonic() + 30
        while not (found := re.search(pattern, self.seen)):
            if time.monotonic() > end:
                pytest.fail(f"{pattern!r} did not come; the terminal shows {self.seen!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                self._read()
        self.seen = self.seen[found.end() :]
        return found

    def _read(self) -> None:
        try:
            self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:
            time.sleep(0.05)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        import fcntl

        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self) -> int:
        """The exit code; what the target still prints is read, or it could not end."""

        def ended() -> list[int]:
            if select.select([self.fd], [], [], 0)[0]:
                self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return [status] if pid else []

        [status] = eventually("the end", ended)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("among_threads", [False, True])
def test_ctrl_c_reaches_the_target_alone_and_lets_it_clean_up(box: Driver, among_threads: bool) -> None:
    code = (
        f"import time\ntry:\n    print('ready', flush=True); {WAIT}\n"
        "except KeyboardInterrupt:\n    time.sleep(0.3); print('cleaned', 'up'); raise SystemExit(9)"
    )
    terminal = Terminal(box, "python3", "-c", code, among_threads=among_threads)
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("cleaned up")
    assert terminal.wait() == 9


def test_ctrl_c_is_delivered_once(caller: Driver) -> None:
    code = (
        "import signal, time; seen = []; signal.signal(signal.SIGINT, lambda *a: seen.append(1));"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.02)\n"
        "for _ in range(25): time.sleep(0.02)\n"
        "print('count', len(seen))"
    )
    terminal = Terminal(caller, "python3", "-c", code)
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("count 1\r")
    assert terminal.wait() == 0


def test_terminal_size_and_resize(box: Driver) -> None:
    code = (  # sigwait: a handler would not run if the signal came just before input() began to read
        "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print('ready', os.isatty(0), os.isatty(1), flush=True)\n"
        "signal.sigwait([signal.SIGWINCH]); print('size', *os.get_terminal_size())\n"
        "input(); print('ended')"
    )
    terminal = Terminal(box, "python3", "-c", code)
    terminal.expect("ready True True")
    terminal.resize(33, 77)
    terminal.expect("size 77 33")
    terminal.type("\n")
    terminal.expect("ended")
    assert terminal.wait() == 0


def test_an_interactive_shell_has_job_control(box: Driver) -> None:
    terminal = Terminal(box, "bash", "--norc", "-i", env={"PATH": "/usr/bin:/bin", "PS1": "prompt> ", "TERM": "dumb"})
    terminal.expect("prompt> ")
    seconds = mark()
    terminal.type(f"sleep {seconds}\n")
    eventually("the job", lambda: processes(seconds))
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("kill -9 %1\n")
    terminal.expect("prompt> ")
    terminal.type("exit 4\nexit 4\n")  # the first may be told that there are stopped jobs
    assert terminal.wait() == 4


def test_captured_stderr_still_looks_like_a_terminal(caller: Driver) -> None:
    code = (
        "import os, sys; print('tty', os.isatty(2), os.get_terminal_size(2), flush=True); print('red', file=sys.stderr)"
    )
    terminal = Terminal(caller, "python3", "-c", code, tee=True)
    terminal.resize(20, 60)
    terminal.expect("tty True")
    terminal.expect("red\r\n")
    terminal.expect("kept: red")
    assert terminal.wait() == 0
