"""px in px: its own repository, and its unit tests, in its own sandbox."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from px.home import Home
from tests.support.needs import need
from tests.support.px import UV, run_px

pytestmark = pytest.mark.network
REPO = Path(__file__).parents[2]
SCRIPT = "#!/usr/bin/python3 -u\nimport sys\nprint('a file', sys.prefix)\n"
MANIFEST = """\
[project]
name = "with-files"
version = "1.0"
requires-python = ">=3.11"
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
script-files = ["tools/a-file"]
"""


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """px as it is now, in a repository of its own."""
    root = tmp_path_factory.mktemp("px")
    for name in git(REPO, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")[:-1]:
        if (REPO / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, root / name)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("base", ["debian-12", "debian-13"])
def test_its_unit_tests_pass_in_its_own_sandbox(repository: Path, warm_home: Home, base: str) -> None:
    need("bubblewrap")
    manifest, home = repository / "pyproject.toml", str(warm_home.root)
    text = (REPO / "pyproject.toml").read_text()
    manifest.write_text(text.replace("[tool.px.sandbox]", f'[tool.px.sandbox]\nbase = "{base}"'))
    run_px("sync", "--sandbox", "--extra", "dev", cwd=repository, timeout=600, PX_HOME=home)
    # Without those that start pytest or fuzz for long: they say nothing more about the sandbox.
    left_out = ("--ignore=tests/unit/fuzz", "--ignore=tests/unit/test_needs.py")
    tests = ("tests/unit", "-q", "-m", "not slow", *left_out)
    done = run_px("test", "--sandbox", *tests, cwd=repository, check=False, timeout=900, PX_HOME=home)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert " passed" in done.stdout


def test_programs_that_are_files_of_the_project(tmp_path: Path, warm_home: Home) -> None:
    """On this machine and in the sandbox alike, with the env's interpreter, and anew when the file changes."""
    need("bubblewrap")
    home = str(warm_home.root)
    (tmp_path / "pyproject.toml").write_text(MANIFEST)
    script = tmp_path / "tools/a-file"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    subprocess.run([UV, "lock", "--quiet"], cwd=tmp_path, check=True)
    assert run_px("run", "a-file", cwd=tmp_path, PX_HOME=home).stdout.startswith("a file /")
    assert run_px("run", "--sandbox", "a-file", cwd=tmp_path, PX_HOME=home).stdout == "a file /opt/px/env\n"
    script.write_text(SCRIPT.replace("a file", "another"))
    assert run_px("run", "--sandbox", "a-file", cwd=tmp_path, PX_HOME=home).stdout == "another /opt/px/env\n"
    assert run_px("run", "a-file", cwd=tmp_path, PX_HOME=home).stdout.startswith("another /")
