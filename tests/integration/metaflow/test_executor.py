"""The executor on the real SDKs against the conformance servers: ends, faults, leases, secrets."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from metaflow_extensions.sandbox.plugins.backend import LABEL, Network, Resources, SandboxConfig
from metaflow_extensions.sandbox.plugins.backends import daytona as daytona_backend
from metaflow_extensions.sandbox.plugins.backends import get_remote_backend
from metaflow_extensions.sandbox.plugins.errors import Refused, SandboxGone, Unavailable
from metaflow_extensions.sandbox.plugins.remote.task import TaskSpec
from metaflow_extensions.sandbox.plugins.sandbox_executor import RunLostError, SandboxExecutor

from .conftest import Server

LABELS = {LABEL: "metaflow", "flow": "F", "run": "1", "step": "s", "task": "1"}
PLANTED = "planted-value-31d7"


@pytest.fixture
def executor(fresh: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SandboxExecutor]:
    for name, value in fresh.env.items():
        monkeypatch.setenv(name, value)

    # Daytona counts in minutes, and a minute of its server here has two seconds.
    usual = 1800 if fresh.kind == "daytona" else 60

    def make(*, retries: int = 2, lease: int = usual, parent: int | None = None) -> SandboxExecutor:
        config = SandboxConfig(labels=LABELS, lease_seconds=lease)
        backend = get_remote_backend(fresh.kind)
        return SandboxExecutor(backend, config, infra_retries=retries, parent=parent)

    return make


def lines(text: str) -> list[str]:
    """The messages of Metaflow log lines; what the executor itself says is not one."""
    return [line.partition("]")[2] for line in text.splitlines() if line.startswith("[MFLOG|")]


def test_streams_apart_and_the_exit_code_is_the_tasks(
    executor: Callable[..., SandboxExecutor], fresh: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    before = fresh.stats()
    code = executor().run(TaskSpec("echo out; echo err >&2; printf 'no newline'; exit 7", {}))
    said = capfd.readouterr()
    assert code == 7
    assert lines(said.out) == ["out", "no newline"]
    assert lines(said.err) == ["err"]
    assert said.out.startswith("[MFLOG|0|")
    after = fresh.stats()
    assert after["created"] - before["created"] == after["destroyed"] - before["destroyed"] == 1


def test_a_signal_becomes_128_and_its_number(executor: Callable[..., SandboxExecutor]) -> None:
    assert executor().run(TaskSpec("python3 -c 'import os; os.kill(os.getpid(), 11)'; exit $?", {})) == 139


@pytest.mark.parametrize("record", ["no JSON", '{"exit": "x"}', '{"exit": 1e999}', "7", "[" * 4000])
def test_a_task_that_writes_over_its_record_has_failed(
    executor: Callable[..., SandboxExecutor], record: str, capfd: pytest.CaptureFixture[str]
) -> None:
    script = f"printf %s '{record}' >$PX_STATE/exit; kill -9 $PPID; sleep 60"
    assert executor().run(TaskSpec(script, {})) == 1
    assert "wrote over the record of its end" in capfd.readouterr().err


def test_lines_arrive_while_the_task_runs(executor: Callable[..., SandboxExecutor]) -> None:
    """The second line waits for a file that is only written once the first has arrived here."""
    runner = executor()
    task = TaskSpec("echo first; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo second", {})
    seen: list[bytes] = []

    def watch() -> None:
        while runner.sandbox_id is None or not seen:
            time.sleep(0.02)
        get_remote_backend(runner._backend.name).upload(str(runner.sandbox_id), b"", "/tmp/go")

    class Spy(io.BytesIO):
        def write(self, data: Any) -> int:
            seen.append(data)
            return len(data)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(Spy(), write_through=True))
        assert runner.run(task) == 0
    watcher.join()
    assert lines(b"".join(seen).decode()) == ["first", "second"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failed_creation_is_tried_again(
    executor: Callable[..., SandboxExecutor], fresh: Server, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh.faults(fail_create=1, fail_status=status, retry_after=1 if status == 429 else None)
    assert executor().run(TaskSpec("echo done", {})) == 0
    assert lines(capfd.readouterr().out) == ["done"]


def test_a_task_waits_for_room_in_the_account(
    executor: Callable[..., SandboxExecutor], fresh: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(fresh.stats()["creations"])
    fresh.faults(fail_create=4, fail_status=429)
    runner = executor(retries=0)
    assert runner.run(TaskSpec("true", {})) == 0
    assert len(fresh.stats()["creations"]) == before + 5
    # Not for longer than a creation may take, and not without a pause, whatever the provider says.
    fresh.faults(fail_create=1000, fail_status=429, retry_after=0)
    runner._config = replace(runner._config, create_seconds=1)
    create = Mock(wraps=runner._backend.create)
    monkeypatch.setattr(runner._backend, "create", create)
    with pytest.raises(Refused) as raised:
        runner.run(TaskSpec("true", {}))
    assert "--max-workers" in str(raised.value)
    assert create.call_count <= 3


def test_creation_is_not_tried_for_ever(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    fresh.faults(fail_create=1000, fail_status=500)
    with pytest.raises(Unavailable, match="switched on by the test"):
        executor(retries=1).run(TaskSpec("true", {}))
    assert len(fresh.stats()["creations"]) > 1


def test_a_wrong_key_is_refused_at_once_with_the_fix(
    executor: Callable[..., SandboxExecutor], fresh: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(n for n in fresh.env if n.endswith("_API_KEY"))
    monkeypatch.setenv(name, "wrong-key")
    with pytest.raises(Refused) as raised:
        executor().run(TaskSpec("true", {}))
    assert f"export {name}=" in str(raised.value)
    assert "wrong-key" not in str(raised.value)


def test_a_dropped_stream_loses_and_repeats_nothing(
    executor: Callable[..., SandboxExecutor], fresh: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh.faults(drop_streams=2)
    script = "for i in $(seq 40); do echo line $i; echo error $i >&2; sleep 0.05; done; exit 4"
    before = fresh.stats()["created"]
    assert executor().run(TaskSpec(script, {})) == 4
    said = capfd.readouterr()
    assert lines(said.out) == [f"line {i}" for i in range(1, 41)]
    assert lines(said.err) == [f"error {i}" for i in range(1, 41)]
    assert fresh.stats()["created"] - before == 1, "the task itself was not started again"


def test_a_sandbox_that_dies_is_replaced(
    executor: Callable[..., SandboxExecutor], fresh: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh.faults(die_times=1, die_after=1.0)
    assert executor().run(TaskSpec("echo begun; sleep 2; echo ended", {}, may_rerun=True)) == 0
    assert lines(capfd.readouterr().out) == ["begun", "begun", "ended"]


def test_a_task_without_retry_is_not_run_twice(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    before = fresh.stats()["created"]
    fresh.faults(die_times=1, die_after=0.5)
    with pytest.raises(SandboxGone, match="Allow that with @retry"):
        executor().run(TaskSpec("sleep 30", {}))
    assert fresh.stats()["created"] - before == 1


@pytest.mark.parametrize("fault", ["fail_upload", "fail_exec"])
def test_a_task_that_never_started_is_started_again(
    executor: Callable[..., SandboxExecutor], fresh: Server, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The file, or the command that starts the task, did not arrive."""
    fresh.faults(**{fault: 1}, fail_status=503)
    assert executor().run(TaskSpec("echo once", {})) == 0
    assert lines(capfd.readouterr().out) == ["once"]


def test_a_lost_deletion_is_noticed(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    fresh.faults(lose_deletes=2)
    executor().run(TaskSpec("true", {}))
    assert fresh.stats()["alive"] == []


def test_the_time_limit_ends_the_task_and_says_so(
    executor: Callable[..., SandboxExecutor], capfd: pytest.CaptureFixture[str]
) -> None:
    assert executor().run(TaskSpec("sleep 60", {}, time_limit=1)) == 1
    assert "limit of 1 seconds" in capfd.readouterr().err


def test_a_lost_run_takes_the_sandbox_with_it(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    with pytest.raises(RunLostError):
        executor(parent=1 << 22).run(TaskSpec("sleep 60", {}))
    assert fresh.stats()["alive"] == []


def test_the_lease_is_renewed_while_the_task_runs(executor: Callable[..., SandboxExecutor]) -> None:
    assert executor(lease=3).run(TaskSpec("for i in $(seq 50); do echo $i; sleep 0.1; done", {})) == 0


def test_a_killed_trampoline_leaves_nothing_after_the_lease(fresh: Server, tmp_path: Path) -> None:
    program = (
        "from metaflow_extensions.sandbox.plugins.backend import *\n"
        "from metaflow_extensions.sandbox.plugins.backends import get_remote_backend\n"
        "from metaflow_extensions.sandbox.plugins.remote.task import TaskSpec\n"
        "from metaflow_extensions.sandbox.plugins.sandbox_executor import SandboxExecutor\n"
        f"config = SandboxConfig(labels={LABELS!r}, lease_seconds=3)\n"
        f"executor = SandboxExecutor(get_remote_backend({fresh.kind!r}), config, infra_retries=0)\n"
        "executor.run(TaskSpec('echo begun; sleep 600', {}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program], env={**os.environ, **fresh.env}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "begun" in process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(fresh.stats()["alive"]) == 1
    fresh.wait_empty()


def test_values_are_on_no_command_line_and_in_no_record_of_the_provider(
    executor: Callable[..., SandboxExecutor], fresh: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    script = (
        'test "$SECRET_VALUE" = planted-value-31d7 && echo it arrived; '
        'for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; echo; done; ls /tmp/*.py 2>/dev/null; exit 0'
    )
    assert executor().run(TaskSpec(script.replace(PLANTED, PLANTED), {"SECRET_VALUE": PLANTED})) == 0
    said = capfd.readouterr().out
    assert lines(said)[0] == "it arrived"
    rest = said.partition("it arrived")[2].replace(f"= {PLANTED} &&", "")
    assert PLANTED not in rest, "a command line inside shows the value, or the uploaded file is still there"
    assert ".py\n" not in rest.replace("runner.py", "")
    assert PLANTED not in str(fresh.stats())


def test_options_reach_the_provider_or_are_refused(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    backend = get_remote_backend(fresh.kind)
    config = SandboxConfig(image="python:3.12", resources=Resources(cpu=2, memory_mb=3000), labels=LABELS)
    sandbox = backend.create(config)
    try:
        assert [s.sandbox_id for s in backend.sandboxes(LABELS)] == [sandbox]
        assert backend.sandboxes({**LABELS, "run": "2"}) == []
        asked = fresh.stats()["creations"][-1]
        if fresh.kind == "daytona":
            assert (asked["cpu"], asked["memory"], asked["autoStopInterval"]) == (2, 3, 0)
            assert "FROM python:3.12" in asked["buildInfo"]["dockerfileContent"]
        else:
            assert asked["templateID"].startswith("px-")
    finally:
        backend.destroy(sandbox)


def test_one_builds_a_template_and_the_others_wait(
    executor: Callable[..., SandboxExecutor], fresh: Server, tmp_path: Path
) -> None:
    """Each task of a foreach is a process of its own; all of them need the template at the same moment."""
    if fresh.kind != "e2b":
        return  # Daytona builds an image when a sandbox asks for it, and knows it by its content
    fresh.faults(build_delay=2)
    before = fresh.stats()["requests"].count("POST /v3/templates")
    program = (
        "from metaflow_extensions.sandbox.plugins.backend import *\n"
        "from metaflow_extensions.sandbox.plugins.backends import get_remote_backend\n"
        f"config = SandboxConfig(resources=Resources(cpu=3), labels={LABELS!r})\n"
        "backend = get_remote_backend('e2b')\n"
        "backend.destroy(backend.create(config))\n"
    )
    env = {**os.environ, **fresh.env, "PX_HOME": str(tmp_path)}
    tasks = [subprocess.Popen([sys.executable, "-c", program], env=env) for _ in range(4)]
    assert [task.wait(timeout=120) for task in tasks] == [0] * 4
    assert fresh.stats()["requests"].count("POST /v3/templates") == before + 1


def test_names_and_addresses_of_the_network(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    """Both providers take names; Daytona has a list of its own for them.  The servers refuse both, and say which."""
    backend = get_remote_backend(fresh.kind)
    config = SandboxConfig(network=Network(only=("10.0.0.0/8", "api.example.org", "203.0.113.7/32")), labels=LABELS)
    backend.check(config)
    with pytest.raises(Refused, match="domainAllowList" if fresh.kind == "daytona" else "network"):
        backend.create(config)
    if fresh.kind == "daytona":
        parameters = daytona_backend._parameters(backend.load(), config)
        assert parameters.network_allow_list == "10.0.0.0/8,203.0.113.7/32"
        assert parameters.domain_allow_list == "api.example.org"


def test_the_servers_fail_closed(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    """An egress list is the thing that must never be dropped in silence; these servers cannot enforce one."""
    backend = get_remote_backend(fresh.kind)
    with pytest.raises(Refused, match="does not implement"):
        backend.create(SandboxConfig(network=Network(only=("10.0.0.0/8",)), labels=LABELS))
    assert fresh.stats()["alive"] == []


def test_files_come_back_as_they_went(executor: Callable[..., SandboxExecutor], fresh: Server) -> None:
    backend = get_remote_backend(fresh.kind)
    sandbox = backend.create(SandboxConfig(labels=LABELS))
    try:
        content = bytes(range(256)) * 1000
        backend.upload(sandbox, content, "/tmp/a directory/file")
        assert backend.download(sandbox, "/tmp/a directory/file") == content
    finally:
        backend.destroy(sandbox)
