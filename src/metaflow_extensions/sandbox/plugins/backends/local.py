"""Local: px sandboxes on this machine.  No account, no remote datastore, no second start of Metaflow."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.backend import SandboxBackend, SandboxConfig, SandboxInfo, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class LocalBackend(SandboxBackend):
    """Steps in bubblewrap over px's layers; started by ``local_launch.py``, found by the records it leaves."""

    name = "local"
    remote = False

    def check(self, config: SandboxConfig) -> None:
        for option, value in (("gpu", config.resources.gpu), ("disk", config.resources.disk_mb)):
            if value:
                raise Unusable(
                    f"The local sandbox cannot give a step {option}={value}.",
                    fix=[f"Remove {option}= from the step, or run it at a provider: @daytona({option}={value})"],
                )
        if config.network.only:
            raise Unusable(
                "The local sandbox has its network on or off; it cannot allow single addresses.",
                fix=["Say network=True or network=False", "Or run the step at a provider: @e2b(network=…)"],
            )
        self._check_machine()
        from metaflow_extensions.sandbox.plugins import local_image

        local_image.check(config.image)

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

    def sandboxes(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
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
                    os.kill(record["pid"], signal.SIGKILL)  # the kernel ends the sandbox with it
                except ProcessLookupError:
                    return


def _records() -> Iterator[dict[str, Any]]:
    """The records of running sandboxes; what is left of those that were killed is swept away."""
    from px.home import Home

    for file in sorted((Home.from_environment().sandbox / "running").glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        started = "pid" in record
        if started and _is_ours(record["pid"], file):
            yield record
        elif started or _will_not_start(record["parent"]):
            _forget(file, record)


def _will_not_start(launcher: int) -> bool:
    """A run asks before its first task and after its last: what it has not started then, it never will."""
    return launcher == os.getpid() or not Path(f"/proc/{launcher}").exists()


def _forget(file: Path, record: dict[str, Any]) -> None:
    for directory in record.get("scratch", ()):
        shutil.rmtree(directory, ignore_errors=True)
    file.unlink(missing_ok=True)


def _is_ours(pid: int, file: Path) -> bool:
    """Whether this process is still the one that wrote the record: numbers are used again."""
    try:
        return os.fsencode(file.name) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _state(record: dict[str, Any]) -> str:
    return "running" if Path(f"/proc/{record['parent']}").exists() else "orphaned"
