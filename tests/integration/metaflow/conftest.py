"""Real Metaflow, real SDKs, servers on loopback: S3 by moto, E2B and Daytona by :mod:`tests.servers`."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from tests.conftest import REPO
from tests.support.needs import need

FLOWS = Path(__file__).parent / "flows"
KEY = "key-of-the-provider-9f31"
ACCESS, SECRET = "AKIAPLANTED0000001", "planted-secret-of-the-datastore-77c2"


@dataclass
class Server:
    """A running conformance server."""

    kind: str
    url: str
    process: subprocess.Popen[str]

    @property
    def env(self) -> dict[str, str]:
        if self.kind == "e2b":
            return {"E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url, "E2B_API_KEY": KEY}
        return {"DAYTONA_API_URL": self.url, "DAYTONA_API_KEY": KEY}

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/_stats", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def faults(self, **switches: float | None) -> None:
        data = json.dumps(switches).encode()
        request = urllib.request.Request(f"{self.url}/_faults", data=data, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def wait_empty(self, seconds: float = 30) -> None:
        """Until no sandbox is left, which must come about by itself."""
        end = time.monotonic() + seconds
        while self.stats()["alive"]:
            assert time.monotonic() < end, self.stats()["labels"]
            time.sleep(0.1)


@dataclass
class Done:
    """How a run of a flow ended, and what it said."""

    code: int
    output: str


@cache
def flows() -> Path:
    """A copy of the flows: around the originals there is a px project, this repository, and steps would run in that."""
    kept = tempfile.TemporaryDirectory(prefix="px-flows-")
    atexit.register(kept.cleanup)
    shutil.copytree(FLOWS, kept.name, dirs_exist_ok=True)
    return Path(kept.name)


@dataclass
class Workspace:
    """A directory to run flows in, with everything that they need in the environment."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable

    def popen(self, flow: str, *args: str, **env: str) -> subprocess.Popen[str]:
        """Start a flow, of :func:`flows` or ``../…``; the test reads its output (both streams) and ends it."""
        file = flow if flow.startswith("../") else str(flows() / flow)
        return _started([self.python, file, *args], self.root, {**self.env, **env})

    def run(self, flow: str, *args: str, **env: str) -> Done:
        """Run a flow that must succeed."""
        done = self._run(flow, args, env)
        assert done.code == 0, done.output
        return done

    def fail(self, flow: str, *args: str, **env: str) -> Done:
        """Run a flow that must not succeed."""
        done = self._run(flow, args, env)
        assert done.code != 0, done.output
        return done

    def _run(self, flow: str, args: tuple[str, ...], env: dict[str, str]) -> Done:
        process = self.popen(flow, *args, **env)
        output, _ = _finished(process)
        return Done(process.returncode, output)

    def ask(self, code: str, **env: str) -> Any:
        """Evaluate a line of Python with Metaflow's client, in a process of its own, and return its JSON value."""
        program = f"import json\nfrom metaflow import *\nnamespace(None)\nprint('\\n' + json.dumps({code}))"
        done = subprocess.run(
            [self.python, "-c", program],
            cwd=self.root,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def _started(command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """A flow in a session of its own, so that all that it starts can be ended with it; both streams are one."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _finished(process: subprocess.Popen[str], seconds: int = 240) -> tuple[str, str]:
    """What the flow said to its end; a flow that hangs is killed with all that it started, and is a failure."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def _clean(home: Path) -> dict[str, str]:
    """The environment of a user who has nothing set: Metaflow's own configuration must not leak in."""
    dropped = ("METAFLOW_", "AWS_", "E2B_", "DAYTONA_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    # The client's cache is in /tmp by default, where another user may have made it first.
    cache = {"METAFLOW_CLIENT_CACHE_PATH": str(Path(tempfile.gettempdir(), f"px-tests-metaflow-{os.getuid()}"))}
    return {
        **env, **cache, "USER": "tester", "PX_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"
    }  # fmt: skip


@pytest.fixture(scope="session")
def sandbox_home(warm_home: Home) -> Home:
    need("bubblewrap")
    return warm_home


@pytest.fixture
def workspace(sandbox_home: Home, tmp_path: Path) -> Workspace:
    """A fresh directory with the local datastore."""
    root = tmp_path / "work"
    root.mkdir()
    return Workspace(root, _clean(sandbox_home.root))


@contextmanager
def serving(kind: str, home: Home, *args: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.servers.{kind}", "--key", KEY, *args],
        cwd=REPO,
        env=_clean(home.root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Server(kind, process.stdout.readline().strip(), process)
    finally:
        process.stdin.close()
        process.wait(timeout=240)  # it removes the images that it has unpacked: many small files
        process.stdout.close()


@pytest.fixture(scope="session", params=["e2b", "daytona"])
def server(request: pytest.FixtureRequest, sandbox_home: Home) -> Iterator[Server]:
    with serving(request.param, sandbox_home, "--minute", "2") as found:
        yield found


@pytest.fixture
def fresh(server: Server) -> Iterator[Server]:
    """The server without faults, and without sandboxes when the test is over."""
    server.faults()
    yield server
    server.faults()
    server.wait_empty()


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """An S3 server with a bucket, as the variables that Metaflow wants."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(f"{url}/moto-api/")
        import boto3

        client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=ACCESS, aws_secret_access_key=SECRET
        )
        client.create_bucket(Bucket="bucket")
        yield {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "METAFLOW_S3_ENDPOINT_URL": url,
            "METAFLOW_DATASTORE_SYSROOT_S3": "s3://bucket/metaflow",
            "METAFLOW_DATATOOLS_S3ROOT": "s3://bucket/data",
            "METAFLOW_DEFAULT_DATASTORE": "s3",
            "METAFLOW_S3_WORKER_COUNT": "2",
        }
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def s3(sandbox_home: Home) -> Iterator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@contextmanager
def metadata_service(directory: Path) -> Iterator[str]:
    """A metadata service on loopback, as its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.servers.metadata", str(directory), str(port)]
    process = subprocess.Popen(command, cwd=REPO)
    try:
        _wait_for(f"http://127.0.0.1:{port}/ping")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(url)


# Whole flows take long.  Both providers share this code, so one of them stands for both in `make test`.
WHOLE_FLOWS = (
    "test_backends_elsewhere.py",
    "test_decorators.py",
    "test_executor.py",
    "test_listing.py",
    "test_project_at_provider.py",
    "test_remote.py",
    "test_templates.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in WHOLE_FLOWS and "[daytona" in item.name:
            item.add_marker(pytest.mark.slow)
