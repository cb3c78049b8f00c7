"""Programs that people use at a terminal, through ``px run --sandbox``, on both bases: an editor, a pager, prompts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from px.home import Home
from tests.support.needs import need
from tests.support.px import PX, run_px
from tests.support.terminal import Terminal

pytestmark = pytest.mark.network
MANIFEST = """\
[project]
name = "interactive"
version = "1"
requires-python = ">=3.11"
[tool.px.sandbox]
base = "{base}"
[tool.px.sandbox.capabilities]
less = true
"""


Run = Callable[..., Terminal]


@pytest.fixture(scope="module", params=["debian-12", "debian-13"])
def project(request: pytest.FixtureRequest, warm_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("bubblewrap", "vim")
    root = tmp_path_factory.mktemp("interactive")
    (root / "pyproject.toml").write_text(MANIFEST.format(base=request.param))
    (root / "script.py").write_text("def half(n):\n    return n / 2\n\nprint('result', half(10))\n")
    (root / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    shutil.copy("/usr/bin/vim.tiny", root)
    run_px("sync", "--sandbox", cwd=root, PX_HOME=str(warm_home.root))
    return root


@pytest.fixture
def run(project: Path, warm_home: Home) -> Run:
    env = {**os.environ, "PX_HOME": str(warm_home.root), "TERM": "xterm"}
    return lambda *argv: Terminal([str(PX), "run", "--sandbox", *argv], env, cwd=project)


def test_an_editor_writes_a_file_and_follows_the_size(run: Run, project: Path) -> None:
    terminal = run("./vim.tiny", "-u", "NONE", "note.txt")
    terminal.expect("note.txt")
    terminal.type("ifirst\rsecond\x1b")
    terminal.resize(33, 77)
    terminal.expect(r"\x1b\[32;1H")  # the line above the last one of a screen of 33
    terminal.type(":wq\r")
    assert terminal.wait() == 0
    assert (project / "note.txt").read_text() == "first\nsecond\n"


def test_a_pager_shows_pages_and_finds(run: Run) -> None:
    terminal = run("less", "long.txt")
    terminal.expect("line 23\r")
    terminal.type("/line 500$\r")
    terminal.expect("line 522\r")
    terminal.type("q")
    assert terminal.wait() == 0


def test_a_debugger_stops_and_goes_on(run: Run) -> None:
    terminal = run("python", "-m", "pdb", "script.py")
    terminal.expect(r"\(Pdb\) ")
    terminal.type("break 2\n")
    terminal.expect(r"Breakpoint 1 at /app/script.py:2[^$]*\(Pdb\) ")
    terminal.type("continue\n")
    terminal.expect(r"return n / 2[^$]*\(Pdb\) ")
    terminal.type("p n + 1\n")
    terminal.expect(r"11\r\n\(Pdb\) ")
    terminal.type("continue\n")
    terminal.expect(r"result 5\.0\r\n")
    terminal.type("quit\n")
    assert terminal.wait() == 0


def test_a_prompt_has_history_and_says_errors_before_the_next_one(run: Run) -> None:
    terminal = run("python", "-q")
    terminal.expect(">>> ")
    terminal.type("6 * 7\r")
    terminal.expect(r"42\r\n[^$]*>>> ")
    terminal.type("\x10\r")  # Ctrl-P, the line before
    terminal.expect(r"42\r\n[^$]*>>> ")
    terminal.type("1 / 0\r")
    terminal.expect("ZeroDivisionError.*division by zero[^\n]*\n[^$]*>>> ")
    terminal.type("exit(3)\r")
    assert terminal.wait() == 3
