"""The podman engine, with a real podman whose storage is the test's own."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from px.engines.podman import Podman
from tests.integration.engines import places
from tests.integration.engines.conftest import Driver, eventually, make_driver
from tests.integration.engines.test_signals import WAIT, running
from tests.integration.engines.test_terminal import terminal_of
from tests.support.mounts import remove_with_mounts
from tests.support.needs import lacks, need
from tests.support.rootfs import tar

Storage = dict[str, str]


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    """A configuration by which podman keeps images and containers in a directory of the test."""
    need("root", "podman")
    directory = Path(tempfile.mkdtemp(prefix="px-podman-"))
    conf = directory / "storage.conf"
    conf.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{directory}/graph"\nrunroot = "{directory}/run"\n')
    # Without systemd podman must be told not to ask it for control groups.  runc works with any version of them.
    engine = directory / "containers.conf"
    engine.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')
    yield {"CONTAINERS_STORAGE_CONF": str(conf), "CONTAINERS_CONF": str(engine)}
    remove_with_mounts(directory)


def podman(storage: Storage, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *args], env={**os.environ, **storage}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def image(storage: Storage, layers: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> str:
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    tar(layers[0], archive)
    imported = podman(storage, "import", str(archive), "px-engine-test:1")
    assert imported.returncode == 0, imported.stderr
    name = imported.stdout.split()[-1]
    limits = Podman().special()
    tried = podman(storage, "run", "--rm", "--network", "none", *limits, name, "/usr/bin/true")
    if tried.returncode != 0:
        lacks("podman", f"it cannot run a container: {tried.stderr}")
    return name


@pytest.fixture
def box(storage: Storage, image: str, layers: tuple[Path, ...]) -> Iterator[Driver]:
    for driver in make_driver(layers, os.geteuid()):
        driver.engine, driver.more = "podman", {"image": image, "network": False}
        driver.env |= storage
        yield driver


def test_a_run(box: Driver, storage: Storage) -> None:
    done = box.run("sh", "-c", "id -un; pwd; cat; touch made; grep CapEff /proc/self/status; exit 3", text="input\n")
    assert (done.returncode, done.stdout) == (3, f"px\n/app\ninput\nCapEff:\t{'0' * 16}\n"), done.stderr
    assert (box.app / "made").stat().st_uid == box.uid
    assert podman(storage, "ps", "-aq").stdout == ""


def test_the_container_goes_when_px_is_killed(box: Driver, storage: Storage) -> None:
    with running(box, "sh", "-c", "echo ready; sleep 1000") as process:
        process.kill()
        eventually("the end of the container", lambda: podman(storage, "ps", "-aq").stdout == "")


def test_signals_reach_the_target(box: Driver) -> None:
    # podman passes signals on only some time after the output begins, and nothing tells when.  Before that, a signal is
    # lost, or ends podman itself: then the target says nothing, and it is tried again.
    ends = (_terminated(box) for _ in range(10))
    assert next(end for end in ends if end[0]) == ("cleaned up\n", 5)


def _terminated(box: Driver) -> tuple[str, int]:
    with running(box, "sh", "-c", "trap 'echo cleaned up; exit 5' TERM; echo ready; sleep 1000 & wait") as process:
        time.sleep(1)
        while True:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=10)[0], process.returncode


def test_a_terminal(box: Driver) -> None:
    code = (
        f"import os, time\ntry:\n    print('ready', {{os.ttyname(fd) for fd in (0, 1, 2)}}, flush=True); {WAIT}\n"
        "except KeyboardInterrupt:\n    print('caught', 'it')"
    )
    terminal = terminal_of(box, "python3", "-c", code, tee=True)
    terminal.expect("ready {'/dev/pts/0'}")
    terminal.type("\x03")
    terminal.expect("caught it")
    assert terminal.wait() == 0


def test_places_of_the_host_in_the_working_tree(box: Driver) -> None:
    places.check(box)
