"""Whole flows at the providers, played by the conformance servers, with S3: the trampoline, step by step."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest

from px.home import Home
from tests.support.px import PX

from .conftest import ACCESS, FLOWS, KEY, SECRET, Server, Workspace
from .test_local import ARTIFACTS, artifacts

FORWARDED = "forwarded-value-8a9b"


class CommandLines:
    """Every command line that a process of this machine had while the test ran, sampled as `ps` would."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    self.seen.add((process / "cmdline").read_bytes())
                except OSError:
                    continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def px(workspace: Workspace, server: Server, command: str) -> str:
    done = subprocess.run(
        [PX, "sandbox", command, "--backend", server.kind],
        cwd=workspace.root,
        env={**workspace.env, **server.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stand_ins(lines: CommandLines, run: str) -> list[bytes]:
    return [line for line in lines.seen if b"stand_in.py" in line and run.encode() in line]


def bucket_contents(s3: dict[str, str]) -> dict[str, bytes]:
    import boto3

    client: Any = boto3.client(
        "s3",
        endpoint_url=s3["METAFLOW_S3_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    found = {key: client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}
    # Artifacts and packages are compressed; a search must look into them.
    return {key: gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body for key, body in found.items()}


def test_a_flow_at_a_provider(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    """Artifacts, logs, cards, metadata and tags as in a local run; secrets nowhere."""
    before = fresh.stats()
    env = {
        **s3,
        **fresh.env,
        "MINE": FORWARDED,
        "METAFLOW_SANDBOX_FORWARD": "MINE",
        "METAFLOW_SANDBOX_LEASE_SECONDS": "1800",
    }
    with CommandLines() as lines:
        done = workspace.run("small.py", "run", "--with", fresh.kind, "--tag", "mine", **env)
    after = fresh.stats()
    assert after["created"] - before["created"] == after["destroyed"] - before["destroyed"] == 2
    found = artifacts(workspace, "SmallFlow", "start", ["depth", "mine", "keys", "tags", "me"], **s3)
    run = workspace.ask("Flow('SmallFlow').latest_run.id", **s3)
    task = workspace.ask("Flow('SmallFlow').latest_run['start'].task.pathspec", **s3)
    assert found["depth"] == 4
    assert stand_ins(lines, run), "trampolines are forked"
    assert found["mine"] == FORWARDED, "a variable that was named crosses"
    assert found["keys"] == [], "the provider's own key does not"
    assert "mine" in found["tags"]
    assert found["me"] == task
    logs = workspace.ask("(lambda t: [t.stdout, t.stderr])(Flow('SmallFlow').latest_run['start'].task)", **s3)
    assert logs[0].endswith("first line\nsecond line\n")
    assert logs[0].count("first line") == 1, "a line is kept once"
    assert logs[1] == "first error\n"
    metadata = workspace.ask("Flow('SmallFlow').latest_run['start'].task.metadata_dict", **s3)
    assert metadata["sandbox-backend"] == fresh.kind
    assert metadata["sandbox-id"]
    cards = "[c.type for c in __import__('metaflow.cards').cards.get_cards(Flow('SmallFlow').latest_run['start'].task)]"
    assert workspace.ask(cards, **s3) == ["blank"]
    labels = after["creations"][-1].get("labels") or after["creations"][-1]["metadata"]
    assert (labels["flow"], labels["run"], labels["step"]) == ("SmallFlow", run, "end")

    planted = [value.encode() for value in (KEY, SECRET)]
    # The server itself was started with the key that it shall accept.
    shown = [line for line in lines.seen if b"tests.servers" not in line]
    assert not [line for value in planted for line in shown if value in line]
    assert not [key for value in planted for key, content in bucket_contents(s3).items() if value in content]
    assert not [p for v in planted for p in workspace.root.rglob("*") if p.is_file() and v in p.read_bytes()]
    assert not any(value.decode() in text for value in planted for text in (done.output, str(after)))
    assert not any(FORWARDED.encode() in line for line in lines.seen)


@pytest.mark.slow
def test_signs_that_the_locale_here_lacks(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    flow = workspace.root / "small.py"
    flow.write_text((FLOWS / "small.py").read_text().replace("second line", "second line \u2713"))
    env = {"METAFLOW_SANDBOX_LEASE_SECONDS": "1800", "PYTHONIOENCODING": "latin-1"}
    workspace.run(str(flow), "run", "--with", fresh.kind, **s3, **fresh.env, **env)
    assert workspace.ask("Flow('SmallFlow').latest_run['start'].task.stdout", **s3).endswith("second line \u2713\n")


def test_a_flow_without_a_fork_server(workspace: Workspace, fresh: Server, s3: dict[str, str], tmp_path: Path) -> None:
    """There is none if its socket would have too long a path; Metaflow then starts each trampoline itself."""
    home = tmp_path / "a-long-name" / ("x" * 100)
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800", "PX_HOME": str(home)}
    with CommandLines() as lines:
        workspace.run("ends.py", "run", "--with", fresh.kind, **env)
    assert not stand_ins(lines, workspace.ask("Flow('EndsFlow').latest_run.id", **s3))
    assert artifacts(workspace, "EndsFlow", "start", ["where"], **s3) == {"where": fresh.kind}
    assert fresh.stats()["alive"] == []


def test_live_lines_and_an_interrupt(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    """The first line is here while the step still waits; then Ctrl-C leaves no sandbox."""
    process = workspace.popen("ends.py", "run", "--with", fresh.kind, "--how", "hang", **s3, **fresh.env)
    assert process.stdout is not None
    for line in process.stdout:
        if "begun" in line:
            break
    assert len(fresh.stats()["alive"]) == 1
    os.killpg(process.pid, signal.SIGINT)
    process.stdout.read()
    process.wait(timeout=60)
    process.stdout.close()
    assert fresh.stats()["alive"] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed(workspace: Workspace, fresh: Server, s3: dict[str, str], number: signal.Signals) -> None:
    """The trampoline notices that nobody waits for it, and destroys its sandbox."""
    process = workspace.popen("ends.py", "run", "--with", fresh.kind, "--how", "hang", **s3, **fresh.env)
    assert process.stdout is not None
    for line in process.stdout:
        if "begun" in line:
            break
    process.send_signal(number)
    process.wait(timeout=60)
    process.stdout.close()
    fresh.wait_empty()


def test_everything_killed_at_once_and_reaped(
    workspace: Workspace, fresh: Server, s3: dict[str, str], sandbox_home: Home
) -> None:
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800"}
    process = workspace.popen("ends.py", "run", "--with", fresh.kind, "--how", "hang", **env)
    assert process.stdout is not None
    for line in process.stdout:
        if "begun" in line:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    (sandbox,) = fresh.stats()["alive"]
    # The trampoline has a session of its own, and needs a moment to see that its run is gone.
    end = time.monotonic() + 30
    while "orphaned" not in (shown := px(workspace, fresh, "ps")) and time.monotonic() < end:
        time.sleep(0.2)
    assert sandbox in shown
    assert "orphaned" in shown
    px(workspace, fresh, "reap")
    assert fresh.stats()["alive"] == []


@pytest.mark.slow
def test_a_dead_sandbox_is_retried_as_retry_says(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    """With the executor's own retries off, @retry sees a failed attempt with the cause named."""
    fresh.faults(die_times=1, die_after=0.2)
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_INFRA_RETRIES": "0"}
    args = ["--with", fresh.kind, "--with", "retry:times=1,minutes_between_retries=0"]
    done = workspace.run("small.py", "run", *args, PAUSE="1", METAFLOW_SANDBOX_FORWARD="PAUSE", **env)
    assert "gone" in done.output or "died" in done.output
    assert workspace.ask("Flow('SmallFlow').latest_run['start'].task.current_attempt", **s3) == 1


@pytest.mark.slow
def test_a_step_of_its_own_failure_is_not_run_again(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    before = fresh.stats()["created"]
    done = workspace.fail("ends.py", "run", "--with", fresh.kind, "--how", "raise", **s3, **fresh.env)
    assert "ValueError: on purpose" in done.output
    assert fresh.stats()["created"] - before == 1


@pytest.mark.slow  # Metaflow tries six times to fetch the code package, ten seconds apart
def test_a_datastore_that_is_gone(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    """The sandbox cannot fetch the code package: the run fails, says why, and leaves nothing."""
    gone = 'environment:vars={"METAFLOW_S3_ENDPOINT_URL": "http://127.0.0.1:9"}'
    env = {**s3, **fresh.env, "METAFLOW_S3_RETRY_COUNT": "0", "METAFLOW_SANDBOX_LEASE_SECONDS": "7200"}
    done = workspace.fail("ends.py", "run", "--with", fresh.kind, "--with", gone, **env)
    assert "Failed to download code package" in done.output
    assert fresh.stats()["alive"] == []


@pytest.mark.slow
def test_every_feature_at_a_provider(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    workspace.run("features.py", "run", "--tag", "mine", **s3)
    plain = artifacts(workspace, "FeaturesFlow", "end", ARTIFACTS, **s3)
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800"}
    workspace.run("features.py", "run", "--tag", "mine", "--with", fresh.kind, **env)
    assert artifacts(workspace, "FeaturesFlow", "end", ARTIFACTS, **s3) == plain


@pytest.mark.slow
def test_fifty_at_a_provider(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    before = fresh.stats()
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "7200"}
    workspace.run("many.py", "run", "--with", fresh.kind, "--max-workers", "8", **env)
    after = fresh.stats()
    assert artifacts(workspace, "ManyFlow", "joined", ["total"], **s3) == {"total": 2450}
    assert after["created"] - before["created"] == after["destroyed"] - before["destroyed"] == 53
    assert after["alive"] == []


@pytest.mark.slow
def test_stays_alive_for_a_slow_creation(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    fresh.faults(create_delay=2)
    before = fresh.stats()
    workspace.run("ends.py", "run", "--with", fresh.kind, **s3, **fresh.env)
    after = fresh.stats()
    assert after["created"] - before["created"] == after["destroyed"] - before["destroyed"] == 2
    assert after["alive"] == []
