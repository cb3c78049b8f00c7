"""How runs end: exit codes, signals to px and to the target, and what must not remain afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.engines.conftest import eventually, processes
from tests.integration.sandbox.homes import leftovers
from tests.support.px import PX, run_px

# Both say when they are up; `mark` in their arguments is how the tests find them.  Neither relies on Python's own
# handlers, which a signal just before a system call would not wake.
WAIT = """\
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print('up', flush=True)
time.sleep(600)
"""
TIDY = """\
import signal, sys
wanted = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print('up', flush=True)
signal.sigwait(wanted)
print('tidied', flush=True)
sys.exit(42)
"""


@pytest.fixture
def synced(plain: Path, alone: Home, private_tmp: Path) -> Path:
    run_px("sync", "--sandbox", cwd=plain)
    return plain


def start(root: Path, code: str, mark: str, *flags: str) -> subprocess.Popen[str]:
    command = [str(PX), "run", "--sandbox", *flags, "python", "-c", code, mark]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def assert_nothing_remains(home: Home, private_tmp: Path, mark: str) -> None:
    eventually("the end of every process", lambda: not processes(mark))
    assert not list(private_tmp.iterdir())
    assert not leftovers(home)
    assert str(home.root) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_targets(synced: Path, code: int) -> None:
    done = run_px("run", "--sandbox", "python", "-c", f"raise SystemExit({code})", cwd=synced, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    # The same when there are flags of px, which is another way through px.
    done = run_px("run", "-q", "--sandbox", "sh", "-c", f"exit {code}", cwd=synced, check=False)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("name", ["TERM", "INT", "KILL", "SEGV"])
def test_a_target_that_a_signal_ends(synced: Path, alone: Home, private_tmp: Path, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    done = run_px("run", "--sandbox", "sh", "-c", f"kill -{name} $$", "the-mark", cwd=synced, check=False)
    assert done.returncode == 128 + number
    assert_nothing_remains(alone, private_tmp, "the-mark")


@pytest.mark.parametrize("flags", [(), ("-q",)], ids=["warm", "with flags"])
@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_signal_to_px_reaches_the_target(
    synced: Path, alone: Home, private_tmp: Path, name: str, flags: tuple[str, ...]
) -> None:
    mark = f"mark-{os.getpid()}-{name}-{len(flags)}"
    process = start(synced, TIDY, mark, *flags)
    process.send_signal(getattr(signal, f"SIG{name}"))
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("tidied\n", 42)
    # One that does nothing about it dies of it, and px says so.
    process = start(synced, WAIT, mark, *flags)
    process.send_signal(getattr(signal, f"SIG{name}"))
    process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, f"SIG{name}")
    assert_nothing_remains(alone, private_tmp, mark)


def test_killing_px_kills_the_target(synced: Path, alone: Home, private_tmp: Path) -> None:
    mark = f"mark-{os.getpid()}-kill"
    children = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAIT!r}, '{mark}']).wait()"
    process = start(synced, children, mark)
    assert len(processes(mark)) >= 3
    process.kill()
    process.wait(60)
    assert_nothing_remains(alone, private_tmp, mark)
    assert run_px("run", "--sandbox", "python", "-c", "print(1)", cwd=synced).stdout == "1\n"


def test_a_target_killed_from_outside(synced: Path, alone: Home, private_tmp: Path) -> None:
    mark = f"mark-{os.getpid()}-outside"
    process = start(synced, WAIT, mark)
    target = max(processes(mark))  # px, bubblewrap and its first process came before it
    os.kill(target, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert_nothing_remains(alone, private_tmp, mark)


@pytest.mark.slow
def test_interrupting_a_build(native: Path, cold: Home, private_tmp: Path) -> None:
    """Ctrl-C while everything is being made: a short word, 130, nothing left, and the next run just works."""
    command = [str(PX), "run", "--sandbox", "python", "-c", "pass"]
    process = subprocess.Popen(
        command, cwd=native, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("Building"):
        assert line, "the build never started"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.strip().endswith("Interrupted.")
    assert "Traceback" not in err
    assert_nothing_remains(cold, private_tmp, str(cold.root))


def test_stdin_stdout_and_stderr_are_the_targets(synced: Path) -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.stderr.write('said')"
    done = subprocess.run(
        [str(PX), "run", "--sandbox", "python", "-c", code],
        cwd=synced,
        input=b"\0\xffabc",
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"cba\xff\0", b"said")
