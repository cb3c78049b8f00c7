"""Bounds on memory, processors and processes, and the refusal where px cannot set them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engines.conftest import Driver, eventually, make_driver
from tests.integration.engines.test_signals import running
from tests.support.needs import need, only_for
from tests.support.users import another_user

MEGABYTE = 1 << 20


@pytest.fixture
def bounded(caller: Driver) -> Driver:
    """A driver as a user who may make control groups."""
    need("control groups")
    return caller


@pytest.fixture
def unbounded(layers: tuple[Path, ...]) -> Iterator[Driver]:
    """A driver as a user who may not."""
    need("bubblewrap")
    only_for("a machine whose systemd makes no groups", "elsewhere ordinary users may bound what they run")
    yield from make_driver(layers, os.geteuid() or another_user(layers[0]))


def groups() -> list[Path]:
    return sorted(Path("/sys/fs/cgroup").glob("**/px-[0-9]*-*"))


def test_memory_is_bounded_for_the_sandbox_as_a_whole(bounded: Driver) -> None:
    fits = bounded.python("x = bytearray(30 << 20); print(len(x))", limits={"memory": 120 * MEGABYTE})
    assert fits.stdout == f"{30 * MEGABYTE}\n", fits.stderr
    code = (  # each keeps what it has until the other has as much, or is gone
        "import os, socket\nmine, other = socket.socketpair()\n"
        "(mine, other)[os.fork() == 0].close(); kept = mine if other.fileno() < 0 else other\n"
        "x = bytearray(70 << 20); print('big', flush=True); kept.send(b'.'); kept.recv(1)"
    )
    two = bounded.python(code, limits={"memory": 100 * MEGABYTE})
    assert two.stdout != "big\nbig\n"
    over = bounded.python("x = bytearray(300 << 20); print('survived')", limits={"memory": 100 * MEGABYTE})
    assert (over.returncode, over.stdout) == (137, "")


def test_private_files_count_as_memory(bounded: Driver) -> None:
    done = bounded.run("sh", "-c", "head -c 200M /dev/zero > /tmp/big", limits={"memory": 50 * MEGABYTE})
    assert done.returncode == 137


def test_processes_are_bounded(bounded: Driver) -> None:
    code = (
        "import os, time\nmade = 0\n"
        "try:\n    for _ in range(50):\n        if os.fork() == 0: time.sleep(30); os._exit(0)\n        made += 1\n"
        "except BlockingIOError:\n    print('made', made)"
    )
    # px-init and the target itself are two of the ten.
    assert bounded.python(code, limits={"pids": 10}).stdout == "made 8\n"


def test_processors_are_bounded_and_the_groups_are_gone_afterwards(bounded: Driver) -> None:
    with running(bounded, "sh", "-c", "echo ready; sleep 60", limits={"cpus": 0.5, "pids": 20}) as process:
        mine = [g for g in groups() if f"px-{process.pid}-" in g.name]
        quotas = [
            (g / n).read_text().split()[0] for g in mine for n in ("cpu.max", "cpu.cfs_quota_us") if (g / n).exists()
        ]
        assert quotas == ["50000"]
        process.terminate()
        assert process.wait(30) == 143
        assert not [g for g in mine if g.exists()]


def test_a_killed_px_leaves_empty_groups_that_the_next_run_removes(bounded: Driver) -> None:
    with running(bounded, "sh", "-c", "echo ready; sleep 60", limits={"pids": 20}) as process:
        process.kill()
        process.wait()
    left = [g for g in groups() if f"px-{process.pid}-" in g.name]
    eventually("their emptiness", lambda: not any((g / "cgroup.procs").read_text() for g in left))
    assert bounded.run("true", limits={"pids": 20}).returncode == 0
    assert not [g for g in left if g.exists()]


def test_where_groups_cannot_be_made_px_refuses(unbounded: Driver) -> None:
    done = unbounded.run("echo", "ran", limits={"memory": 100 * MEGABYTE, "cpus": 1})
    assert (done.returncode, done.stdout) == (125, "")
    assert "PX907" in done.stderr
    assert "--memory, --cpus" in done.stderr
