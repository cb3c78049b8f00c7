"""The flags of the sandbox, by what the target sees of them."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from tests.support.px import run_px


@pytest.fixture
def synced(plain: Path, warm: Home) -> Path:
    run_px("sync", "--sandbox", cwd=plain)
    return plain


def sandboxed(root: Path, *args: str, check: bool = True, **env: Any) -> str:
    done = run_px("run", "--sandbox", *args, cwd=root, check=check, **env)
    return done.stdout if check else f"{done.returncode} {done.stderr}"


def test_volumes(synced: Path, tmp_path: Path) -> None:
    data = tmp_path / "some data"
    data.mkdir()
    (data / "x").write_text("from outside\n")
    assert (
        sandboxed(synced, "--volume", f"{data}:/data", "sh", "-c", "cat /data/x; echo new > /data/y")
        == "from outside\n"
    )
    assert (data / "y").read_text() == "new\n"
    assert "Read-only" in sandboxed(synced, "--volume", f"{data}:/data:ro", "touch", "/data/z", check=False)
    for wrong in (f"{tmp_path}/absent:/data", "nonsense", f"{data}:relative"):
        said = sandboxed(synced, "--volume", wrong, "true", check=False)
        assert said.startswith(("121 PX040", "2 ")), said


def test_variables(synced: Path) -> None:
    host: dict[str, Any] = {"SECRET_OF_HOST": "leak", "WANTED": "passed on"}
    seen = sandboxed(synced, "-e", "WANTED", "--env", "GIVEN=a=b c", "-e", "MODE=mine", "env", **host)
    variables = dict(line.split("=", 1) for line in seen.splitlines())
    assert variables["WANTED"] == "passed on"
    assert variables["GIVEN"] == "a=b c"
    assert variables["MODE"] == "mine"
    assert not {"SECRET_OF_HOST", "PX_HOME", "PYTEST_CURRENT_TEST"} & set(variables)
    caches = {name for name, value in variables.items() if value.startswith("/home/px/.cache")}
    known = {"PATH", "HOME", "USER", "LANG", "VIRTUAL_ENV", "PWD", "WANTED", "GIVEN", "MODE", "TERM", "COLORTERM"}
    assert set(variables) - caches <= known | {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "SHLVL", "_"}


def test_network(synced: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        code = "import socket, sys; print(socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))) == 0)"
        assert sandboxed(synced, "python", "-c", code, port) == "True\n"
        assert sandboxed(synced, "--no-network", "python", "-c", code, port) == "False\n"


def test_read_only_by_the_manifest(synced: Path) -> None:
    write = ("sh", "-c", "touch written && echo ok")
    manifest = synced / "pyproject.toml"
    manifest.write_text(f"{manifest.read_text()}\n[tool.px.sandbox]\nread-only = true\n")
    for _ in range(2):  # the second time the warm way
        done = run_px("run", "--sandbox", *write, cwd=synced, check=False)
        assert "Read-only file system" in done.stderr
    assert run_px("run", "--sandbox", "--read-write", *write, cwd=synced).stdout == "ok\n"
    assert (synced / "written").exists()


def test_read_only(synced: Path) -> None:
    said = sandboxed(synced, "--read-only", "sh", "-c", "touch /tmp/fine && touch /app/made", check=False)
    assert said.startswith("1 ")
    assert "Read-only file system" in said
    assert not (synced / "made").exists()


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--memory", "64m"), "x = bytearray(300_000_000)"),
        (("--pids", "8"), "import subprocess; [subprocess.Popen(['sleep', '5']) for _ in range(20)]"),
    ],
)
def test_limits_bind_or_are_refused(synced: Path, flags: tuple[str, ...], code: str) -> None:
    """Either the limit works, or px says that it cannot set it; never a run without it."""
    free = run_px("run", "--sandbox", *flags, "true", cwd=synced, check=False)
    bound = run_px("run", "--sandbox", *flags, "python", "-c", code, cwd=synced, check=False)
    assert bound.returncode != 0
    if free.returncode == 0:
        assert bound.returncode in (1, 137)
        assert ("needs more than --memory 64m" in bound.stderr) == (bound.returncode == 137)
    else:
        assert free.returncode == 125
        assert "PX907" in free.stderr


@pytest.mark.parametrize(("flag", "value"), [("--memory", "lots"), ("--cpus", "-1"), ("--pids", "many")])
def test_limits_that_are_not_numbers(synced: Path, flag: str, value: str) -> None:
    said = sandboxed(synced, f"{flag}={value}", "true", check=False)
    assert said.startswith("121 PX040"), said
    assert "For example" in said


def test_engines(synced: Path) -> None:
    assert sandboxed(synced, "--engine", "bubblewrap", "echo", "hi") == "hi\n"
    for env, flags in (({}, ("--engine", "rocket")), ({"PX_ENGINE": "rocket"}, ())):
        said = sandboxed(synced, *flags, "true", check=False, **env)
        assert said.startswith("125 PX908"), said
        assert "bubblewrap, docker, podman" in said


@pytest.mark.parametrize("command", ["run", "test"])
@pytest.mark.parametrize(
    "flag",
    [("--volume", "/a:/b"), ("-e", "X=1"), ("--no-network",), ("--read-only",), ("--memory", "1g"), ("--auto-add",)],
)
def test_sandbox_flags_need_the_sandbox(plain: Path, flag: tuple[str, ...], command: str) -> None:
    done = run_px(command, *flag, "true", cwd=plain, check=False)
    assert done.returncode == 121
    assert done.stderr.startswith("PX041")
    assert f"px {command} --sandbox --" in done.stderr


def test_the_hosts_files_and_processes_are_not_there(synced: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    assert (
        sandboxed(synced, "sh", "-c", f"ls {tmp_path} 2>/dev/null; ls /proc | grep -c '^[0-9]'").split()[-1] in "12345"
    )
    assert "secret" not in sandboxed(synced, "sh", "-c", f"ls -a / /root /home /home/* {tmp_path} 2>/dev/null; true")
    assert str(os.getpid()) not in sandboxed(synced, "sh", "-c", "ls /proc").split()
