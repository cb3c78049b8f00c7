"""A Docker engine of one's own: data, socket and network apart from any other, ended with the test."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.system_packages import require_packages

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class DockerEngine:
    """A running ``dockerd`` and the way to talk to it."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": f"unix://{self.folder}/docker.sock", "DOCKER_CONFIG": str(self.folder)}

    @property
    def containerd(self) -> Path:
        return self.folder / "exec" / "containerd" / "containerd.sock"

    def run(self, *args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["/usr/bin/docker", *map(str, args)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if check:
            assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done


@contextmanager
def running_docker(storage: str = "vfs") -> Iterator[DockerEngine]:
    """Start ``dockerd``; a socket's path must be short, so the folder is in the system's temporary directory.

    ``storage`` names a driver: vfs works everywhere and copies every layer; nothing lets the engine choose.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root, to start dockerd")
    require_packages("docker.io")
    with tempfile.TemporaryDirectory(prefix="px-docker-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid",
                 "--host", f"unix://{folder}/docker.sock", "--iptables=false", "--ip6tables=false", "--bridge=none",
                 *([f"--storage-driver={storage}"] if storage else [])],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            engine = DockerEngine(folder)
            _wait(engine, process)
            yield engine
        finally:
            process.terminate()
            process.wait(30)


def _wait(engine: DockerEngine, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if process.poll() is not None:
            pytest.skip(f"dockerd does not start here: {(engine.folder / 'log').read_text()[-400:]}")
        if engine.run("version", check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError((engine.folder / "log").read_text())
