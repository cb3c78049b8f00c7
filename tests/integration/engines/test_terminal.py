"""A sandbox on a terminal behaves as a program without one: for its target, for the shell, and for who types."""

from __future__ import annotations

import os
import shlex
import signal
import termios
from pathlib import Path

import pytest

from tests.integration.engines.conftest import Driver, children, eventually, kill, processes
from tests.integration.engines.test_signals import WAIT, mark
from tests.support.terminal import Terminal

PROMPT = {"PATH": "/usr/bin:/bin", "PS1": "prompt> ", "TERM": "dumb", "HOME": "/home/px"}


def terminal_of(box: Driver, *argv: str, **fields: object) -> Terminal:
    return Terminal(box.command(argv, tty=True, **fields), box.environment())


def shell(box: Driver) -> Terminal:
    """A shell of the host with job control."""
    terminal = Terminal(["bash", "--norc", "-i"], {**box.environment(), "PS1": "host> ", "TERM": "dumb"})
    terminal.expect("host> ")
    return terminal


def job(box: Driver, *argv: str, **fields: object) -> str:
    """A short word for the shell: a program that runs ``argv`` in a sandbox."""
    script = box.directory / "job"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(box.command(argv, tty=True, **fields))}\n")
    script.chmod(0o755)
    return str(script)


def end(terminal: Terminal) -> None:
    """The shell's end.  It is told twice, as it speaks of stopped jobs first."""
    terminal.type("exit\nexit\n")
    terminal.wait()


# --- the target ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tee", [False, True])
def test_the_three_streams_are_one_terminal(box: Driver, tee: bool) -> None:
    code = (
        "import os; me = os.getpid()\n"
        "print('names', {os.ttyname(fd) for fd in (0, 1, 2)} == {os.ctermid() and os.ttyname(0)}, os.ttyname(0))\n"
        "print('front', os.tcgetpgrp(0) == os.getpgrp() == me, 'session', os.getsid(0))\n"
        "print('own', os.open('/dev/tty', os.O_RDWR) > 2, 'size', *os.get_terminal_size())"
    )
    terminal = terminal_of(box, "python3", "-c", code, tee=tee)
    terminal.expect("names True /dev/pts/0")
    terminal.expect("front True session 1")
    terminal.expect("own True size 80 24")
    assert terminal.wait() == 0


def test_the_target_never_has_the_callers_terminal(box: Driver) -> None:
    code = "import os; print('same', {os.fstat(fd).st_dev for fd in (0, 1, 2)}, os.path.exists('/dev/console'))"
    terminal = terminal_of(box, "python3", "-c", code)
    outside = os.stat(os.ptsname(terminal.fd)).st_dev if hasattr(os, "ptsname") else os.stat("/dev/pts").st_dev
    found = terminal.expect(r"same \{(\d+)\} False")
    assert int(found[1]) != outside
    assert terminal.wait() == 0


@pytest.mark.parametrize("among_threads", [False, True])
def test_ctrl_c_reaches_the_target_alone_and_lets_it_clean_up(box: Driver, among_threads: bool) -> None:
    code = (
        f"import time\ntry:\n    print('ready', flush=True); {WAIT}\n"
        "except KeyboardInterrupt:\n    time.sleep(0.3); print('cleaned', 'up'); raise SystemExit(9)"
    )
    terminal = terminal_of(box, "python3", "-c", code, among_threads=among_threads)
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
    terminal = terminal_of(caller, "python3", "-c", code)
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
    terminal = terminal_of(box, "python3", "-c", code)
    terminal.expect("ready True True")
    terminal.resize(33, 77)
    terminal.expect("size 77 33")
    terminal.type("\n")
    terminal.expect("ended")
    assert terminal.wait() == 0


def test_a_shell_is_interactive_and_has_job_control(box: Driver) -> None:
    terminal = terminal_of(box, "bash", "--norc", env=PROMPT, tee=True)
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


def test_a_traceback_comes_before_the_next_prompt(box: Driver) -> None:
    terminal = terminal_of(box, "python3", "-q", tee=True)
    terminal.expect(">>> ")
    terminal.type("1/0\n")
    terminal.expect(r"Traceback \(most recent call last\):\r\n(  .*\r\n)+ZeroDivisionError: division by zero\r\n>>> ")
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_output_can_be_searched_and_all_of_it_arrives(caller: Driver) -> None:
    code = "import sys; [print(i) for i in range(50_000)]; sys.stdout.flush(); print('end', file=sys.stderr)"
    terminal = terminal_of(caller, "python3", "-c", code, tee=True)
    for number in (1, 25_000, 49_999):
        terminal.expect(rf"\n{number}\r\n")
    terminal.expect("end\r\n")
    terminal.expect(r"kept: [\d\s]*49999\s+end")
    assert terminal.wait() == 0


def test_a_target_that_does_not_read_can_still_write(caller: Driver) -> None:
    code = "import time, tty; tty.setraw(0); print('ready', flush=True); time.sleep(2); print('wrote')"
    terminal = terminal_of(caller, "python3", "-c", code)
    terminal.expect("ready")
    for _ in range(4):
        terminal.type("k" * 4000)
    terminal.expect("wrote")
    assert terminal.wait() == 0


# --- the caller's terminal -----------------------------------------------------------------------------------------


def test_it_is_as_before_however_the_run_ends(box: Driver) -> None:
    terminal = shell(box)
    before = terminal.settings()
    seconds = mark()
    raw = f"import os, tty; tty.setraw(0); print('ready', flush=True); os.execlp('sleep', 'sleep', '{seconds}')"
    program = job(box, "python3", "-c", raw)

    def target() -> int:
        return int(eventually("the target", lambda: processes(seconds))[0])

    def px() -> int:
        return children(terminal.pid)[0]

    for number, victim, code in (
        (signal.SIGKILL, target, 137),
        (signal.SIGTERM, target, 143),
        (signal.SIGTERM, px, 143),
        (signal.SIGHUP, px, 129),
    ):
        terminal.type(f"{program}; echo code $?\n")
        terminal.expect("ready")
        assert not terminal.settings()[3] & termios.ICANON
        os.kill(victim(), number)
        terminal.expect(rf"code {code}\r")
        terminal.expect("host> ")
        eventually("the settings", lambda: terminal.settings() == before or _same_flags(terminal, before))
    end(terminal)


def _same_flags(terminal: Terminal, before: list[object]) -> bool:
    return terminal.settings()[:4] == before[:4]  # bash changes characters at its prompt


def test_two_at_once_do_not_leave_it_raw(caller: Driver) -> None:
    terminal = shell(caller)
    before = terminal.settings()
    program = job(caller, "sh", "-c", "echo here; sleep 1")
    # The first gets its standard input by name, because a shell gives none to what it starts so.
    terminal.type(f"({program} <&1 & {program}; wait; echo over)\n")
    terminal.expect(r"here\s+here\s+over\s+host> ")
    assert _same_flags(terminal, before)
    end(terminal)


def test_the_target_learns_of_a_hangup(box: Driver) -> None:
    seconds = mark()
    code = (
        "import os, signal, time\n"
        "seen = []; signal.signal(signal.SIGHUP, lambda *a: seen.append(1))\n"
        "print('ready', flush=True)\ntry: os.read(0, 100)\nexcept OSError: pass\n"
        "while not seen: time.sleep(0.02)\n"
        f"os.execlp('sleep', 'sleep', '{seconds}')"
    )
    terminal = terminal_of(box, "python3", "-c", code)
    terminal.expect("ready")
    os.close(terminal.fd)
    eventually("the end of its input, and a signal", lambda: processes(seconds))
    kill(processes(seconds)[0])
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 137


# --- a job of a shell ----------------------------------------------------------------------------------------------


def test_ctrl_z_stops_the_job_and_fg_goes_on(box: Driver) -> None:
    terminal = shell(box)
    before = terminal.settings()
    code = "print('ready', flush=True)\nwhile (word := input()) != 'end': print('heard', word, flush=True)"
    terminal.type(f"{job(box, 'python3', '-c', code)}\n")
    terminal.expect("ready")
    for turn in ("one", "two"):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect("host> ")
        assert _same_flags(terminal, before)
        terminal.type("fg\n")
        terminal.expect("job")
        terminal.type(f"{turn}\n")
        terminal.expect(f"heard {turn}")
    terminal.type("end\n")
    terminal.expect("host> ")
    terminal.type("echo code $?\n")
    terminal.expect("code 0")
    end(terminal)


def test_a_job_in_the_background_stops_when_it_reads(box: Driver) -> None:
    terminal = shell(box)
    before = terminal.settings()
    code = "print('started', flush=True); print('heard', input(), flush=True)"
    terminal.type(f"{job(box, 'python3', '-c', code)} &\n")
    terminal.expect("started")

    def stopped() -> bool:
        terminal.type("jobs\n")
        return terminal.expect("Stopped|Running")[0] == "Stopped"

    eventually("its stop", stopped)
    eventually("the settings", lambda: _same_flags(terminal, before))
    terminal.type("fg\n")
    terminal.expect(r"fg\r\n.*job.*\n")
    terminal.type("words\n")
    terminal.expect("heard words")
    terminal.expect("host> ")  # what is typed before goes to the sandbox
    end(terminal)


def test_a_job_may_go_on_in_the_background(box: Driver) -> None:
    terminal = shell(box)
    code = "import time; print('ready', flush=True); time.sleep(2); print('done', flush=True)"
    terminal.type(f"{job(box, 'python3', '-c', code)}\n")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("bg\n")
    terminal.expect("done\r")
    terminal.type("wait\n")
    terminal.expect("Done")
    end(terminal)


def test_without_a_shell_ctrl_z_does_not_stop_for_ever(caller: Driver) -> None:
    """The kernel stops nobody there, because nobody could continue it."""
    terminal = terminal_of(caller, "python3", "-c", "print('ready', flush=True); print('heard', input())")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.type("words\n")
    terminal.expect("heard words")
    assert terminal.wait() == 0


# --- partly a terminal ---------------------------------------------------------------------------------------------

WHICH = "import os, sys; print(*map(os.isatty, (0, 1, 2)), file=open('/app/seen', 'w'))"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{} | cat", "True False True"),
        ("{} 2>err", "True True False"),
        ("echo | {}", "False True True"),
        ("{} </dev/null >out", "False False True"),
    ],
)
def test_what_is_no_terminal_outside_is_none_inside(caller: Driver, line: str, expected: str) -> None:
    terminal = shell(caller)
    terminal.type(f"cd {shlex.quote(str(caller.directory))}\n")
    terminal.type(line.format(job(caller, "python3", "-c", WHICH, tee=True)) + "; echo over $?\n")
    terminal.expect("over 0")
    assert (caller.app / "seen").read_text() == f"{expected}\n"
    end(terminal)


def _in_front(pids: list[int]) -> bool:
    """Whether these are processes of the foreground group, and none is stopped."""
    rows = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return bool(rows) and all(state != "T" and group == front for state, _, group, _, _, front, *_ in rows)


def test_a_pipeline_can_be_stopped_continued_and_interrupted(box: Driver) -> None:
    terminal = shell(box)
    seconds = mark()
    terminal.type(f"{job(box, 'sh', '-c', f'echo ready; exec sleep {seconds}')} | cat; echo over\n")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect("host> ")
    terminal.type("fg\n")
    terminal.expect("cat")
    # The shell says so before it gives the job the terminal and lets it go on.
    eventually("its going on", lambda: _in_front(processes(seconds)))
    terminal.type("\x03")
    eventually("the end", lambda: not processes(seconds))
    terminal.expect("host> ")
    end(terminal)
