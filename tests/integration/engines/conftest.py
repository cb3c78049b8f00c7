"""A real base, and a way to run it through an engine as the caller or as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import ensure_base, ensure_bytecode_layer, load_base_lock
from px.store.objects import Store
from tests.support.needs import need
from tests.support.users import another_user, become

DRIVER = Path(__file__).with_name("driver.py")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/px"}


@pytest.fixture(scope="session")
def layers(warm_home: Home) -> tuple[Path, ...]:
    """debian-12 and its compiled standard library."""
    store = Store(warm_home)
    base = ensure_base(store, load_base_lock("debian-12", host_architecture()))
    return base.tree, ensure_bytecode_layer(store, base).tree


@dataclass
class Driver:
    """Starts sandboxes; knows who they run as and where that user may write."""

    layers: tuple[Path, ...]
    directory: Path
    uid: int
    engine: str = "bubblewrap"
    more: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    around: list[str] = field(default_factory=list)
    """A command that makes the machine another one."""

    @property
    def app(self) -> Path:
        return self.directory / "the app, žluťoučký"

    def command(self, argv: tuple[str, ...], **fields: Any) -> list[str]:
        spec = {
            "layers": [str(layer) for layer in self.layers],
            "argv": argv,
            "env": ENV,
            "mounts": [(str(self.app), "/app", False)],
            **self.more,
            **fields,
        }
        return self.as_user([sys.executable, str(DRIVER), self.engine, json.dumps(spec)])

    def as_user(self, command: list[str]) -> list[str]:
        return [*self.around, *become(self.uid), *command]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PX_HOME": str(self.directory / "px-home"), "HOME": str(self.directory), **self.env}

    def start(self, *argv: str, stdin: int | IO[bytes] | None = subprocess.DEVNULL, pass_fds: tuple[int, ...] = (),
              **fields: Any) -> subprocess.Popen[str]:  # fmt: skip
        return subprocess.Popen(
            self.command(argv, **fields),
            env=self.environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )

    def run(self, *argv: str, text: str | None = None, **fields: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*argv, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE, **fields)
        out, err = process.communicate(text, timeout=60)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def python(self, code: str, **fields: Any) -> subprocess.CompletedProcess[str]:
        return self.run("python3", "-c", code, **fields)


def make_driver(layers: tuple[Path, ...], uid: int) -> Iterator[Driver]:
    # Not pytest's own directory, which only its owner may enter.
    directory = Path(tempfile.mkdtemp(prefix="px-engines-"))
    directory.chmod(0o755)
    driver = Driver(layers, directory, uid)
    driver.app.mkdir()
    if uid != os.geteuid():
        for path in (directory, driver.app):
            os.chown(path, uid, uid)
    yield driver
    shutil.rmtree(directory)


@pytest.fixture(params=["caller", "ordinary user"])
def box(request: pytest.FixtureRequest, layers: tuple[Path, ...]) -> Iterator[Driver]:
    """A driver as whoever runs the tests, and once more as an ordinary user when that is root."""
    need("bubblewrap")
    uid = os.geteuid() if request.param == "caller" else another_user(layers[0], DRIVER.parent)
    yield from make_driver(layers, uid)


@pytest.fixture
def caller(layers: tuple[Path, ...]) -> Iterator[Driver]:
    need("bubblewrap")
    yield from make_driver(layers, os.geteuid())


def processes(mark: str) -> list[int]:
    """Every process of this machine with ``mark`` among its arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def eventually(what: str, check: Any, seconds: float = 20) -> Any:
    """Wait for something that must happen; the limit is only there so that a failure ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.02)
    pytest.fail(f"{what} did not happen")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]
