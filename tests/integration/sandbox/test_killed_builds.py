"""kill -9 of a build at any moment: the next run succeeds, and the store is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.engines.conftest import eventually, processes
from tests.integration.sandbox.homes import leftovers
from tests.support.px import PX, run_px

RUN = ("run", "--sandbox", "python", "-c")


def forget(home: Home, kinds: tuple[str, ...]) -> None:
    """Throw away what was built, so that the next run has to build again."""
    for kind in kinds:
        remove_tree(home.objects / kind)
        remove_tree(home.index / kind)
    for path in (home.sandbox, home.refs):
        remove_tree(path)


def build_and_kill(root: Path, seconds: float) -> bool:
    """Whether the build was still running when its time came; everything it started dies with it."""
    process = subprocess.Popen(
        [PX, *RUN, "pass"], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    caught = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    return caught


def duration(root: Path) -> float:
    started = time.monotonic()
    run_px(*RUN, "pass", cwd=root)
    return time.monotonic() - started


def kill_at_random_moments(root: Path, home: Home, kinds: tuple[str, ...], times: int, check: str) -> None:
    """Kill ``times`` builds in the middle of their work, and see each time that the next run succeeds."""
    forget(home, kinds)
    longest, caught = duration(root), 0
    while caught < times:
        forget(home, kinds)
        moment = random.uniform(0, longest)
        if not build_and_kill(root, moment):
            longest = moment  # it was over by then: a busy machine made the first build slower than this one
            continue
        caught += 1
        told = f"after a kill at {moment:.3f} s"
        eventually(f"the end of what the build started, {told}", lambda: not _running(home))
        done = run_px(*RUN, check, cwd=root, check=False)
        assert done.returncode == 0, f"{told}: {done.stderr}"
        assert not leftovers(home), told
    verified = run_px("store", "verify", cwd=root, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert verified.stdout.endswith("all whole\n")


def _running(home: Home) -> list[int]:
    return [pid for pid in processes("/usr/bin/python3") if _uses(pid, home)]


def _uses(pid: int, home: Home) -> bool:
    try:
        return str(home.root) in Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return False


BUILT = ("sandbox-base", "layer", "pkg-build", "profile", "runtime")


@pytest.mark.slow
def test_a_cold_build_killed(plain: Path, cold: Home, private_tmp: Path) -> None:
    kill_at_random_moments(plain, cold, BUILT, 3, "import plain_project")
    assert not list(private_tmp.iterdir())


@pytest.mark.slow
def test_a_package_build_killed(native: Path, own: Home, private_tmp: Path) -> None:
    kill_at_random_moments(native, own, ("pkg-build", "profile"), 3, "import answer42")
    assert not list(private_tmp.iterdir())


@pytest.mark.slow
def test_a_cold_build_killed_at_fifty_moments(database: Path, cold: Home, private_tmp: Path) -> None:
    times = int(os.environ.get("PX_TEST_KILLS", "50"))
    kill_at_random_moments(database, cold, BUILT, times, "import psycopg2, PIL")
    assert not list(private_tmp.iterdir())
