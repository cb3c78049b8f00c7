"""What cannot work says so before anything runs, with the command that fixes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Workspace

KEYS = {"E2B_API_KEY": "k", "DAYTONA_API_KEY": "k"}
S3 = {
    "METAFLOW_DATASTORE_SYSROOT_S3": "s3://bucket/metaflow",
    "METAFLOW_DEFAULT_DATASTORE": "s3",
    "METAFLOW_S3_ENDPOINT_URL": "http://127.0.0.1:9",  # never reached: the refusals come first
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
}


@pytest.mark.parametrize("backend", ["e2b", "daytona"])
def test_a_local_datastore_with_a_remote_backend(workspace: Workspace, backend: str) -> None:
    done = workspace.fail("ends.py", "run", "--with", f"sandbox:backend={backend}", **KEYS)
    assert "python flow.py --datastore=s3 run …" in done.output
    assert "--with sandbox:backend=local" in done.output
    assert "Traceback" not in done.output


def test_a_wrong_backend_name(workspace: Workspace) -> None:
    done = workspace.fail("ends.py", "run", "--with", "sandbox:backend=daytoma")
    assert "there are local, daytona, e2b" in done.output
    assert "--with sandbox:backend=daytona" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(("backend", "name"), [("e2b", "E2B_API_KEY"), ("daytona", "DAYTONA_API_KEY")])
def test_a_missing_key(workspace: Workspace, backend: str, name: str) -> None:
    done = workspace.fail("ends.py", "run", "--with", backend, **S3)
    assert f"export {name}=" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("backend", ["e2b", "daytona"])
def test_a_missing_sdk(workspace: Workspace, tmp_path: Path, backend: str) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(f"import sys; sys.modules[{backend!r}] = None")
    env = {**S3, **KEYS, "PYTHONPATH": str(tmp_path / "without")}
    done = workspace.fail("ends.py", "run", "--with", backend, **env)
    assert f"pip install 'px-sandbox[{backend}]'" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("sandbox:gpu=1", "gpu=1"),
        ("sandbox:image=ubuntu", "image='debian-12'"),
        ("sandbox:timeout=soon", "timeout='soon'"),
        ("sandbox:env=A=B", "env={"),
        ("e2b:gpu=1", "@daytona(gpu=1)"),
        ("e2b:backend=local", "--with sandbox:backend=local"),
    ],
)
def test_an_option_that_cannot_be_honoured(workspace: Workspace, spec: str, said: str) -> None:
    """One of each here; tests/unit has them all."""
    env = {} if spec.startswith("sandbox") else {**S3, **KEYS}
    done = workspace.fail("ends.py", "run", "--with", spec, **env)
    assert said in done.output
    assert "Fix:" in done.output
    assert "Read: docs/" in done.output
    assert "Task is starting" not in done.output
    assert "Traceback" not in done.output


def test_a_home_that_cannot_be_written(workspace: Workspace, tmp_path: Path) -> None:
    """Before the run starts: its steps without a sandbox may take hours."""
    (tmp_path / "file").write_text("not a directory")
    done = workspace.fail("ends.py", "run", "--with", "sandbox", PX_HOME=str(tmp_path / "file"))
    assert "export PX_HOME=" in done.output
    assert "Workflow starting" not in done.output
    assert "Traceback" not in done.output


def test_parallel_at_a_provider(workspace: Workspace) -> None:
    done = workspace.fail("parallel.py", "run", "--with", "e2b", **S3, **KEYS)
    assert "@parallel" in done.output
    assert "backend=local" in done.output


def test_no_network_with_a_remote_datastore(workspace: Workspace) -> None:
    workspace.fail("ends.py", "run", "--with", "sandbox:network=False", **S3)


@pytest.mark.parametrize("deployer", ["argo-workflows", "step-functions"])
def test_what_cannot_be_deployed_says_so(workspace: Workspace, deployer: str) -> None:
    env = {**S3, "METAFLOW_SFN_IAM_ROLE": "role", "METAFLOW_BATCH_JOB_QUEUE": "queue"}
    done = workspace.fail("look.py", deployer, "create", **env)
    assert f"{deployer} would run it without" in done.output
    assert "Remove @sandbox from the step" in done.output
    assert "--environment=px" in done.output
    done = workspace.fail("small.py", "--with", "sandbox", deployer, "create", **env)
    assert "Leave out --with sandbox" in done.output
    assert "@sandbox from" not in done.output, "it is not in the code"
    assert "python flow.py run --with sandbox" in done.output


def test_the_providers_key_is_never_forwarded(workspace: Workspace) -> None:
    env = {"METAFLOW_SANDBOX_FORWARD": "MINE,E2B_API_KEY", "E2B_API_KEY": "k"}
    done = workspace.fail("ends.py", "run", "--with", "sandbox", **env)
    assert "export METAFLOW_SANDBOX_FORWARD=MINE" in done.output
