"""A Docker engine of one's own: data, socket and network apart from any other, ended with the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.mounts import remove_with_mounts
from tests.support.needs import lacks, need

PLACES = f"/usr/sbin:/usr/bin:{os.environ.get('PATH', '')}"
"""Where Debian's daemon is, and the client that fits it; others on PATH come after them."""
PATIENCE = 60
"""Seconds until a daemon that does not answer is given up."""


class CannotStartError(Exception):
    """There is no Docker engine to be had here, and why."""


@dataclass(frozen=True)
class DockerEngine:
    """A running ``dockerd`` and the way to talk to it."""

    folder: Path
    client: str
    """The ``docker`` that came with the daemon: a newer one may refuse to talk to it."""

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.host, "DOCKER_CONFIG": str(self.folder)}

    @property
    def containerd(self) -> Path:
        return self.folder / "exec" / "containerd" / "containerd.sock"

    def run(self, *args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [self.client, *map(str, args)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if check:
            assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done


@contextmanager
def running_docker(storage: str = "") -> Iterator[DockerEngine]:
    """An engine for a test, which cannot go on without."""
    need("root", "dockerd")
    with ExitStack() as stack:
        try:
            engine = stack.enter_context(docker_engine(storage))
        except CannotStartError as e:
            lacks("dockerd", str(e))
        yield engine


@contextmanager
def docker_engine(storage: str = "") -> Iterator[DockerEngine]:
    """Start ``dockerd``, or raise :class:`CannotStartError`.

    ``storage`` names a driver: vfs works everywhere and copies every layer; without one the daemon chooses.
    """
    daemon, client = (shutil.which(name, path=PLACES) for name in ("dockerd", "docker"))
    if os.geteuid() != 0 or daemon is None or client is None:
        raise CannotStartError("needs root and Debian's package docker.io")
    # A socket's path must be short, and other users must reach it.
    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="px-docker-")), client)
    engine.folder.chmod(0o755)
    with (engine.folder / "log").open("wb") as log:
        process = subprocess.Popen(_command(daemon, engine, storage), stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(engine, process)
        yield engine
    finally:
        process.terminate()
        process.wait(PATIENCE)
        remove_with_mounts(engine.folder)


def _command(daemon: str, engine: DockerEngine, storage: str) -> list[str]:
    places = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "pid"}
    command = [daemon, "--host", engine.host, "--bridge=none", "--iptables=false", "--ip6tables=false"]
    command += [f"{option}={engine.folder / name}" for option, name in places.items()]
    return command + ([f"--storage-driver={storage}"] if storage else [])


def _wait(engine: DockerEngine, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while engine.run("version", check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > end:
            said = (engine.folder / "log").read_text(errors="replace").strip()[-500:]
            raise CannotStartError(f"dockerd {'ended' if process.poll() is not None else 'does not answer'}: {said}")
        time.sleep(0.1)
