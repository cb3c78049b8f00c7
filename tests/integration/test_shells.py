"""Completions and manual pages as people meet them: from an installed wheel, in real shells, with a real terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from docs import manual
from tests.integration.test_release import build, copied
from tests.support.needs import need
from tests.support.px import UV
from tests.support.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.network]
MANIFEST = """\
[project]
name = "app"
version = "1"
[project.optional-dependencies]
plotting = []
[dependency-groups]
linting = []
"""
# What is typed before Tab, and the line that must stand there after it.
LINES = [
    ("px store ver", "px store verify"),
    ("px sync --res", "px sync --reset"),
    ("px sync --group lin", "px sync --group linting"),
    ("px sync --group=lin", "px sync --group=linting"),
    ("px sync --extra plo", "px sync --extra plotting"),
    ("px sandbox add postgr", "px sandbox add postgres"),
    ("px run flas", "px run flask"),
    ("px run --sandbox scri", "px run --sandbox script.py"),
    ("px --project elsewh", "px --project elsewhere"),
]
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "--interactive"],
}
# `say` shows the words that a line became; a mark without the letters of its command, which the terminal echoes.
SETUP = {
    "bash": "source {share}/bash-completion/completions/px; say() {{ printf 'R:%s;' \"$*\"; }}; PS1='$ '\n",
    "zsh": "fpath=({share}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D; "
    "say() {{ printf 'R:%s;' \"$*\" }}; PS1='$ '\n",
    "fish": "source {share}/fish/vendor_completions.d/px.fish; function say; printf 'R:%s;' \"$argv\"; end\n",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with px's wheel."""
    root = tmp_path_factory.mktemp("installed")
    build(copied(root / "tree"), root / "out", "--wheel")
    (wheel,) = (root / "out").glob("*.whl")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, root / "venv"], check=True)
    install = [UV, "pip", "install", "--quiet", "--no-deps", "--offline", "--python", str(root / "venv/bin/python")]
    subprocess.run([*install, str(wheel)], check=True, timeout=300)
    return root / "venv"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that would notice if a Tab ran something of it."""
    root = tmp_path / "app"
    (root / ".px/envs/current/bin").mkdir(parents=True)
    (root / ".px/envs/current/bin/flask").write_text("")
    (root / "elsewhere").mkdir()
    (root / "pyproject.toml").write_text(MANIFEST)
    (root / "script.py").write_text("")
    for name in ("sitecustomize.py", "tomllib.py", "os.py", "px.py"):
        (root / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    return root


@pytest.fixture
def environment(installed: Path, project: Path, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """With a PYTHONPATH as people have it: what lies there must not run for a Tab."""
    yield {
        **os.environ,
        "PATH": f"{installed}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(project),
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completing_lines(shell: str, installed: Path, project: Path, environment: Mapping[str, str]) -> None:
    if shell == "zsh":
        need("zsh")
    if shell == "fish":
        need("fish")
    terminal = Terminal(START[shell], environment, cwd=project)
    terminal.resize(24, 200)
    terminal.type(SETUP[shell].format(share=installed / "share") + "say ready\n")
    terminal.expect("R:ready;")
    for typed, completed in LINES:
        terminal.type(f"\x15{typed}\t")
        terminal.expect(completed.split(" ")[-1])
        terminal.type("\x01say \x05\n")  # to the start of the line, and to its end
        assert terminal.expect(r"R:([^;]*);")[1].strip().rstrip("/") == completed
    terminal.type("exit\n")
    terminal.wait()


def test_manual_pages(installed: Path, environment: Mapping[str, str]) -> None:
    need("man")
    there = {path.name for path in (installed / "share/man/man1").iterdir()}
    assert there == set(manual.pages())
    for name in sorted(there):
        page = installed / "share/man/man1" / name
        command = ["man", "--warnings=all", "--local-file", str(page)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert name.removesuffix(".1") in done.stdout
    # By its name, because man looks beside the directories of PATH.
    found = subprocess.run(["man", "-w", "px-run"], env=environment, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == str(installed / "share/man/man1/px-run.1")
