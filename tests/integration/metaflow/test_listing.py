"""``px sandbox ps`` and ``px sandbox reap``: what exists here and at the providers, and the end of what was left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metaflow_extensions.sandbox.plugins import owner
from metaflow_extensions.sandbox.plugins.backend import LABEL, SandboxConfig
from metaflow_extensions.sandbox.plugins.backends import get_backend, get_remote_backend
from metaflow_extensions.sandbox.plugins.sandbox_listing import reap
from px.home import Home

from .conftest import Server, Workspace

OWNER = "from metaflow_extensions.sandbox.plugins.owner import owner; print(owner())"


def px(workspace: Workspace, *args: str, **env: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "px", "sandbox", *args, "--json"],
        env={**workspace.env, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    details: dict[str, Any] = json.loads(done.stdout)["details"]
    return done.returncode, details


def test_what_a_provider_has_is_listed_and_what_was_left_is_ended(
    workspace: Workspace, fresh: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fresh.env.items():
        monkeypatch.setenv(name, value)
    backend = get_remote_backend(fresh.kind)
    gone = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=True).stdout.strip()
    labels = {LABEL: "metaflow", "flow": "LostFlow", "run": "77", "step": "s", "task": "1", "owner": gone}
    left = backend.create(SandboxConfig(labels=labels, lease_seconds=36000))
    other = backend.create(SandboxConfig(labels={**labels, "flow": "OtherFlow"}, lease_seconds=36000))
    try:
        code, details = px(workspace, "ps", "--flow", "LostFlow", **fresh.env)
        assert code == 0
        assert [(row["id"], row["state"], row["run"]) for row in details["sandboxes"]] == [(left, "orphaned", "77")]
        code, details = px(workspace, "reap", "--flow", "LostFlow", "--dry-run", **fresh.env)
        assert (code, details["ended"]) == (0, [])
        code, details = px(workspace, "reap", "--flow", "LostFlow", **fresh.env)
        assert (code, [row["id"] for row in details["ended"]]) == (0, [left])
        assert fresh.stats()["alive"] == [other]
    finally:
        backend.destroy(other)


def test_what_others_with_the_same_key_use_is_left_alone(
    workspace: Workspace, fresh: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sandboxes of another machine, of a process that lives, and of one that nobody knows: with the same run's name."""
    for name, value in fresh.env.items():
        monkeypatch.setenv(name, value)
    backend = get_remote_backend(fresh.kind)
    labels = {LABEL: "metaflow", "flow": "LostFlow", "run": "77", "step": "s", "task": "1"}
    owners = [owner.owner(), owner.owner().replace(owner.machine(), "0" * 16), "", f"{owner.machine()}-1-0"]
    made = [backend.create(SandboxConfig(labels={**labels, "owner": o}, lease_seconds=36000)) for o in owners]
    try:
        assert reap(fresh.kind, {"flow": "LostFlow", "run": "77", "step": "s"}) == [
            f"Ended the {fresh.kind} sandbox {made[3]}, which the run had left."
        ], "process 1 lives, but began at another time than the owner"
        code, details = px(workspace, "reap", "--flow", "LostFlow", "--run", "77", **fresh.env)
        assert (code, details["ended"]) == (0, [])
        assert sorted(fresh.stats()["alive"]) == sorted(made[:3])
        code, details = px(workspace, "reap", "--run", "77", "--all", **fresh.env)
        assert sorted(row["id"] for row in details["ended"]) == sorted(made[:3])
    finally:
        for sandbox in made:
            backend.destroy(sandbox)


@pytest.mark.parametrize("command", ["ps", "reap"])
def test_a_list_that_is_not_whole_is_a_failure(workspace: Workspace, command: str) -> None:
    code, details = px(workspace, command, "--backend", "locall")
    assert code == 1
    assert "there are local, daytona, e2b" in details["problems"][0]
    code, details = px(workspace, command, "--backend", "e2b")
    assert code == 1
    assert "export E2B_API_KEY" in details["problems"][0]


def test_what_killed_tasks_left_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was never started, and one that was killed: neither stays, nor what was made for them."""
    monkeypatch.setenv("PX_HOME", str(tmp_path))
    running = Home(tmp_path).sandbox / "running"
    running.mkdir(parents=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    records: dict[str, dict[str, Any]] = {
        "never-started": {"parent": gone.pid},
        "never-started-by-us": {"parent": os.getpid()},
        "killed": {"parent": 1, "pid": gone.pid},
        "about-to-start": {"parent": 1},
        "of-another-container": {"parent": gone.pid, "pid": gone.pid, "machine": "0" * 16},
    }
    for name, record in records.items():
        scratch = tmp_path / f"scratch-{name}"
        scratch.mkdir()
        content: dict[str, Any] = {
            "id": name,
            "labels": {},
            "scratch": [str(scratch)],
            "machine": owner.machine(),
            **record,
        }
        (running / f"{name}.json").write_text(json.dumps(content))
    assert get_backend("local").sandboxes({}) == []
    kept = ["about-to-start", "of-another-container"]
    assert sorted(file.stem for file in running.iterdir()) == kept
    assert sorted(path.name for path in tmp_path.glob("scratch-*")) == [f"scratch-{name}" for name in kept]
