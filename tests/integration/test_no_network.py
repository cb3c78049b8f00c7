"""Without a network: none at all, and one whose name server never says a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import need
from tests.support.px import PX

MANIFEST = '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = []\n'
LOCK = 'version = 1\nrequires-python = ">=3.11"\n\n[[package]]\nname = "p"\nversion = "1"\nsource = { virtual = "." }\n'
# Runs the rest of its arguments; in a network of its own, which has loopback and nothing else.
PROGRAM = """
import fcntl, socket, struct, subprocess, sys
mode, resolv, *command = sys.argv[1:]
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 1))
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if mode == "silent":
    server.bind(("127.0.0.1", 53))  # and never answers
    subprocess.run(["mount", "--bind", resolv, "/etc/resolv.conf"], check=True)
sys.exit(subprocess.run(command).returncode)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text(MANIFEST)
    (root / "uv.lock").write_text(LOCK)
    return root


def px_there(mode: str, project: Path, *args: str) -> str:
    """What px says in such a network, to which nothing was ever downloaded."""
    need("user namespaces")
    resolv = project.parent / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\n")
    unknown = {"PX_DEBIAN_MIRROR": "http://mirror.example.org/debian", "UV_DEFAULT_INDEX": "http://index.example.org/"}
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", "--mount", sys.executable, "-c", PROGRAM, mode, resolv, PX, *args],
        cwd=project,
        env={**os.environ, **unknown, "UV_CACHE_DIR": str(project.parent / "uv"), "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (122, 125), done.stderr
    return done.stderr


@pytest.mark.parametrize("mode", ["off", "silent"])
def test_a_cold_store(mode: str, project: Path) -> None:
    """The advice is about the network; another base would not come either."""
    said = px_there(mode, project, "sync", "--sandbox")
    assert "PX900" in said
    assert "Check the network" in said
    assert "[tool.px.sandbox].base" not in said
    assert ("no name server answers, so mirror.example.org cannot be found" in said) == (mode == "silent")


def test_uv_gives_up_soon_too(project: Path) -> None:
    """Its lookups take ten seconds each, and it tries four times."""
    said = px_there("silent", project, "add", "anything")
    assert "dns error" in said
    assert "retries" not in said
    assert "Check the network" in said
    assert "spelling" not in said
