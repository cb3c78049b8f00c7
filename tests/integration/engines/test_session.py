"""Persistent sandboxes: commands, background processes, files, terminals, and the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from px.engines.bubblewrap import Bubblewrap
from px.engines.session import Session
from px.errors import PxError
from px.home import Home
from px.warm.spec import Mount, RunSpec
from tests.integration.engines.conftest import ENV, children, eventually, kill, processes
from tests.integration.engines.test_signals import mark
from tests.support.needs import need


@pytest.fixture(autouse=True)
def _bubblewrap() -> None:
    need("bubblewrap")


@pytest.fixture
def spec(layers: tuple[Path, ...], tmp_path: Path) -> RunSpec:
    (tmp_path / "app").mkdir()
    return RunSpec(layers, (), ENV, mounts=(Mount(tmp_path / "app", "/app"),), network=False)


@pytest.fixture
def session(spec: RunSpec, home: Home) -> Iterator[Session]:
    with Session(Bubblewrap(home), spec) as made:
        yield made


def test_commands_share_one_sandbox(session: Session) -> None:
    assert session.exec(["sh", "-c", "echo kept > /tmp/f; id -u"]).communicate().stdout == "1000\n"
    assert session.exec(["cat", "/tmp/f"]).communicate().stdout == "kept\n"
    done = session.exec(["sh", "-c", "cat; echo err >&2; exit 7"]).communicate(b"x" * 200_000)
    assert (done.code, len(done.stdout), done.stderr) == (7, 200_000, "err\n")


def test_environment_and_directory(session: Session) -> None:
    done = session.exec(["sh", "-c", "echo $HOME $MORE $PWD"], env={"MORE": "a b"}, cwd="/usr").communicate()
    assert done.stdout == "/home/px a b /usr\n"
    assert session.exec(["pwd"], cwd="/nowhere").communicate().code == 126
    assert session.exec(["nothing"]).communicate().code == 127


def test_background_processes_stay_and_signals_reach_a_whole_group(session: Session) -> None:
    seconds = mark()
    started = session.exec(["sh", "-c", f"sleep {seconds} & sleep {seconds}; true"])
    eventually("both", lambda: len(processes(seconds)) == 2)
    assert session.exec(["true"]).communicate().code == 0
    started.terminate()
    assert started.wait(20) == 143
    eventually("the end of the group", lambda: not processes(seconds))
    left = session.exec(["sh", "-c", f"setsid sleep {seconds} >/dev/null 2>&1 &"]).communicate()
    assert left.code == 0
    eventually("the daemon", lambda: len(processes(seconds)) == 1)


def test_a_command_that_takes_too_long_is_killed(session: Session) -> None:
    seconds = mark()
    with pytest.raises(TimeoutError):
        session.exec(["sleep", seconds]).communicate(timeout=0.3)
    eventually("its end", lambda: not processes(seconds))


def test_many_at_once(session: Session) -> None:
    found: dict[int, str] = {}

    def work(number: int) -> None:
        found[number] = session.exec(["sh", "-c", f"echo {number}"]).communicate().stdout

    threads = [threading.Thread(target=work, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: f"{n}\n" for n in range(40)}


def test_files_are_what_the_sandbox_sees(session: Session, tmp_path: Path) -> None:
    session.write_bytes("/tmp/d", b"x")
    assert session.read_bytes("/tmp/d") == b"x"
    # A link to a path that exists on both sides must give the sandbox's file, and one outside it nothing.
    (tmp_path / "app/secret").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("of the host")
    (tmp_path / "app/release").symlink_to("/etc/hostname")
    assert session.read_bytes("/app/release") == b"sandbox\n"
    with pytest.raises(FileNotFoundError):
        session.read_bytes("/app/secret")
    with pytest.raises(FileNotFoundError):
        session.write_bytes("/app/secret", b"overwritten")
    assert (tmp_path / "outside").read_text() == "of the host"


def test_directories(session: Session) -> None:
    session.make_directory("/tmp/a")
    session.write_bytes("/tmp/a/f", b"1234")
    session.rename("/tmp/a/f", "/tmp/a/g")
    assert {name: s.st_size for name, s in session.list("/tmp/a").items()} == {"g": 4}
    session.remove("/tmp/a/g")
    session.remove("/tmp/a")
    assert session.list("/tmp") == {}
    with pytest.raises(ValueError, match=r"\.\."):
        session.remove("/tmp/..")


def test_a_pipe_in_the_way_does_not_stop_the_sandbox(session: Session) -> None:
    session.exec(["python3", "-c", "import os; os.mkfifo('/tmp/fifo')"]).communicate()
    with pytest.raises(OSError, match="regular"):
        session.read_bytes("/tmp/fifo")
    assert session.exec(["true"]).communicate().code == 0


def test_a_terminal(session: Session) -> None:
    process = session.exec(["sh", "-c", "tty; read line; echo got $line; stty size"], tty=True)
    process.resize(40, 100)
    assert process.stdout.readline() == b"/dev/pts/0\r\n"
    os.write(process.stdin.fileno(), b"word\n")
    seen = b""
    while piece := _read(process.stdout):
        seen += piece
    assert seen.split() == [b"word", b"got", b"word", b"40", b"100"]
    assert process.wait(20) == 0
    process.close()


def _read(stream: IO[bytes]) -> bytes:
    try:
        return stream.read(65536)
    except OSError:
        return b""  # the terminal's other side is closed


def test_nobody_waits_for_a_sandbox_that_died(session: Session) -> None:
    waiting = session.exec(["sleep", "1000"])
    [first] = children(session._bubblewrap.pid)
    kill(first)
    assert waiting.wait(20) == 137
    with pytest.raises(PxError) as e:
        session.exec(["true"])
    assert e.value.code == "PX906"


def test_a_filter_and_no_capabilities_for_every_command(session: Session) -> None:
    done = session.exec(["grep", "-E", "^(CapEff|CapBnd|NoNewPrivs|Seccomp):", "/proc/self/status"]).communicate()
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        "CapEff:": "0" * 16, "CapBnd:": "0" * 16, "NoNewPrivs:": "1", "Seccomp:": "2",
    }  # fmt: skip


OWNER = """
import sys, threading, time
from pathlib import Path
from px.engines.bubblewrap import Bubblewrap
from px.engines.session import Session
from px.warm.spec import RunSpec
from px.home import Home
made = []
def start():
    spec = RunSpec(tuple(map(Path, sys.argv[3:])), (), {"PATH": "/usr/bin"}, cwd="/")
    made.append(Session(Bubblewrap(Home(Path(sys.argv[1]))), spec))
    made[0].exec(["sleep", sys.argv[2]])
# The thread that starts it ends at once, which must not end the sandbox.
thread = threading.Thread(target=start)
thread.start(); thread.join()
time.sleep(0.5)
print(made[0].exec(["echo", "alive"]).communicate().stdout, flush=True)
time.sleep(100)
"""


def test_the_sandbox_outlives_the_thread_that_made_it_and_dies_with_the_process(
    layers: tuple[Path, ...], tmp_path: Path
) -> None:
    seconds = mark()
    command = [sys.executable, "-c", OWNER, str(tmp_path / "home"), seconds, *map(str, layers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "alive\n"
        eventually("the command", lambda: len(processes(seconds)) == 2)  # the owner's own arguments have the number too
        owner.kill()
    eventually("the end of the sandbox", lambda: not processes(seconds))


def test_a_session_that_cannot_start_says_why(spec: RunSpec, home: Home) -> None:
    broken = RunSpec((*spec.layers, Path("/no/such/layer")), (), ENV)
    with pytest.raises((PxError, FileNotFoundError)):
        Session(Bubblewrap(home), broken)
    elsewhere = RunSpec(spec.layers, (), ENV, cwd="/no/such/directory", network=False)
    with pytest.raises(PxError, match="no/such/directory"):
        Session(Bubblewrap(home), elsewhere)
