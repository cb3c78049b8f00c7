"""Local: px sandboxes on this machine.  They need no account, no remote datastore and no second start of Metaflow."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.backend import LocalStep, SandboxBackend, SandboxConfig, SandboxInfo
from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.local import image
from metaflow_extensions.sandbox.plugins.local.gpus import gpus_of
from metaflow_extensions.sandbox.plugins.owner import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class LocalBackend(SandboxBackend):
    """Steps in bubblewrap over px's layers.  Each launcher leaves a record of its sandbox under ``PX_HOME``."""

    name = "local"
    remote = False

    def check(self, config: SandboxConfig) -> None:
        if disk := config.resources.disk_mb:
            raise Unusable(
                f"The local sandbox cannot give a step disk={disk}.",
                fix=[f"Remove disk= from the step, or run it at a provider: @daytona(disk={disk})"],
            )
        self._check_machine()  # before the rest, whose checks need px as well
        gpus_of(config.resources.gpu or 0)
        _check_network(config.network.only)
        image.check(config.image)

    def _check_machine(self) -> None:
        try:
            from px.engines.bubblewrap import Bubblewrap
            from px.home import Home
        except ImportError:
            raise Unusable(
                "The local sandbox needs px, which is not installed.",
                fix=["Install it: pip install 'px-sandbox[metaflow]'"],
            ) from None
        problem = Bubblewrap(Home.from_environment()).problem()
        if problem is not None:
            raise Unusable(f"No sandbox can be made on this machine: {problem.reason}", fix=problem.fix)

    def prepare(self, step: LocalStep, script: str) -> None:
        """Build the sandbox of a step, if need be."""
        from metaflow_extensions.sandbox.plugins.local.entrypoint import prepare

        prepare(step, script)

    def enter(self, step: LocalStep, cli_args: Any) -> None:
        """Put a sandbox around the command that Metaflow is about to start for a task."""
        # Imported here, because `px sandbox ps` needs this module and should not wait for Metaflow.
        from metaflow_extensions.sandbox.plugins.local.entrypoint import enter

        enter(step, cli_args)

    def sandboxes(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        # All local sandboxes are ours, so their records do not have the label that says so.
        wanted = {k: v for k, v in labels.items() if k in ("flow", "run", "step", "task", "attempt")}
        return [
            SandboxInfo("local", record["id"], _state(record), record["labels"])
            for record in _records()
            if wanted.items() <= record["labels"].items()
        ]

    def destroy(self, sandbox_id: str) -> None:
        for record in _records():
            if record["id"] == sandbox_id:
                try:
                    os.kill(record["pid"], signal.SIGKILL)  # the kernel ends the sandbox with its launcher
                except ProcessLookupError:
                    return


def _check_network(hosts: tuple[str, ...]) -> None:
    from px.engines.network.rules import parse_rule
    from px.errors import PxError

    for host in hosts:
        try:
            parse_rule(host)
        except PxError as e:
            raise Unusable(
                f"network={','.join(hosts)!r}: {host}: {e.fields['problem']}.",
                fix=['Name hosts, with ports that are not the web\'s: network="api.example.org,db.example.org:5432"'],
            ) from None


def _records() -> Iterator[dict[str, Any]]:
    """The records of running sandboxes.  Those of killed ones are removed on the way."""
    from px.home import Home

    here = machine()
    for file in sorted((Home.from_environment().sandbox / "running").glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # its task has just ended, or is being written
        if record.get("machine") != here:
            continue  # a container or machine with the same home; its processes have numbers of their own
        # The run writes the file and the launcher adds its number, so without one it has not started yet.
        started = "pid" in record
        if started and _is_launcher(record["pid"], file):
            yield record
        elif started or _will_not_start(record["parent"]):
            _forget(file, record)


def _will_not_start(run: int) -> bool:
    """A run asks before its first task and after its last one.  What it has not started then, it never will."""
    return run == os.getpid() or not Path(f"/proc/{run}").exists()


def _forget(file: Path, record: dict[str, Any]) -> None:
    for directory in record.get("scratch", ()):
        shutil.rmtree(directory, ignore_errors=True)
    file.unlink(missing_ok=True)


def _is_launcher(pid: int, file: Path) -> bool:
    """Whether this process is the launcher that wrote the record; numbers of processes are used again."""
    try:
        return os.fsencode(file.name) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _state(record: dict[str, Any]) -> str:
    return "running" if Path(f"/proc/{record['parent']}").exists() else "orphaned"
