"""A docker daemon of the tests' own: private data, private socket, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.engines.conftest import eventually
from tests.integration.system_packages import require_packages


def docker(*args: str, host: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DOCKER_HOST": host}
    return subprocess.run(["docker", *args], env=env, capture_output=True, text=True, check=False)


@contextmanager
def docker_daemon() -> Iterator[str]:
    """The address of a running daemon."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a docker daemon")
    require_packages("docker.io")
    if shutil.which("docker") is None:
        require_packages("docker-cli")
    directory = Path(tempfile.mkdtemp(prefix="px-docker-"))
    directory.chmod(0o755)
    host = f"unix://{directory}/socket"
    command = ["dockerd", "--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec", "--host", host,
               "--pidfile", f"{directory}/pid", "--bridge", "none", "--iptables=false"]  # fmt: skip
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as daemon:
        try:
            _await(daemon, host, directory)
            yield host
        finally:
            daemon.terminate()
            daemon.wait(60)
            _remove(directory)


def _await(daemon: subprocess.Popen[bytes], host: str, directory: Path) -> None:
    def answers() -> bool:
        if daemon.poll() is not None:
            pytest.skip(f"dockerd does not start here: {(directory / 'log').read_text()[-500:]}")
        return docker("version", host=host).returncode == 0

    eventually("dockerd", answers, 60)


def _remove(directory: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if f" {directory}" in line:
            subprocess.run(["umount", "-l", line.split()[4]], check=False)
    shutil.rmtree(directory)


def tar(tree: Path, target: Path) -> None:
    """A tree of the store as an archive, with modes as an image has them."""
    options = ["--owner=0", "--group=0", "--mode=u+w", "--numeric-owner"]
    subprocess.run(["tar", "-cf", str(target), *options, "-C", str(tree), "."], check=True)
