"""A Slurm cluster of two nodes on this machine: Debian's own slurmctld, slurmd and munged, all of them for one test."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.needs import need

NODES = ("one", "two")
CONFIGURATION = """\
ClusterName=px
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=6 State=UNKNOWN
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=6 State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Slurm:
    """The cluster, as its users see it."""

    env: dict[str, str]

    def run(self, *command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        everything = {**self.env, **env}
        return subprocess.run(
            command, cwd=cwd, env=everything, capture_output=True, text=True, timeout=300, check=False
        )

    def start(self, *command: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
        everything = {**self.env, **env}
        return subprocess.Popen(command, cwd=cwd, env=everything, stdout=subprocess.PIPE, text=True)


@contextmanager
def slurm(directory: Path) -> Iterator[Slurm]:
    """Start the daemons, wait until both nodes take jobs, and end them again."""
    need("root", "Slurm")
    (directory / "state").mkdir(parents=True)
    (directory / "munge.key").write_bytes(os.urandom(1024))
    (directory / "munge.key").chmod(0o400)
    written = CONFIGURATION.format(host=socket.gethostname(), directory=directory, ports=_free_ports(3))
    (directory / "slurm.conf").write_text(written)
    found = Slurm({**os.environ, "SLURM_CONF": str(directory / "slurm.conf")})
    files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid", "log-file": "munge.log"}
    munge = [f"--{name}={directory / file}" for name, file in {**files, "seed-file": "munge.seed"}.items()]
    with ExitStack() as daemons:
        # --force: the directories of tests are everybody's to enter, which munged does not like for its key.
        daemons.enter_context(_daemon(found, directory, "munged", "--foreground", "--force", *munge))
        _wait("munged", (directory / "munge.socket").exists, directory)
        daemons.enter_context(_daemon(found, directory, "slurmctld", "-D"))
        for node in NODES:
            daemons.enter_context(_daemon(found, directory, "slurmd", "-D", "-N", node))
        _wait("two idle nodes", lambda: _states(found, directory) == ["idle", "idle"], directory)
        yield found
        found.run("scancel", "--user=root", "--signal=KILL", cwd=directory)


@contextmanager
def _daemon(cluster: Slurm, directory: Path, *command: str) -> Iterator[None]:
    with (directory / f"{command[0]}-{command[-1].strip('-')[:9].replace('/', '-')}.out").open("wb") as log:
        process = subprocess.Popen(command, env=cluster.env, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def _states(cluster: Slurm, directory: Path) -> list[str]:
    return cluster.run("sinfo", "--noheader", "--Node", "--format=%T", cwd=directory).stdout.split()


def _wait(what: str, check: object, directory: Path) -> None:
    assert callable(check)
    end = time.monotonic() + 60
    while not check():
        if time.monotonic() > end:
            said = "\n".join(path.read_text(errors="replace")[-2000:] for path in directory.glob("*.out"))
            pytest.fail(f"there is no {what}: {said}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as kept:
        probes = [kept.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
