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


# What of tests/unit does not run inside, and why.
LEFT_OUT = {
    "tests/unit/fuzz": "it takes minutes, and reads files alone: it says nothing more about the sandbox",
    "tests/unit/test_needs.py": "it starts pytest on tests that install Debian packages, which a sandbox cannot",
}


def copied(root: Path, base: str) -> Path:
    """px as it is now, in a repository of its own."""
    need("bubblewrap")
    for name in git(REPO, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")[:-1]:
        if (REPO / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, root / name)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    manifest = root / "pyproject.toml"
    text = manifest.read_text()
    assert text.count("\n[tool.px.sandbox]") == 1
    manifest.write_text(text.replace("\n[tool.px.sandbox]", f'\n[tool.px.sandbox]\nbase = "{base}"'))
    return root


@pytest.mark.parametrize("base", ["debian-12", "debian-13"])
def test_its_unit_tests_pass_in_its_own_sandbox(tmp_path: Path, warm_home: Home, base: str) -> None:
    root, home = copied(tmp_path, base), str(warm_home.root)
    subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True)
    run_px("sync", "--sandbox", "--extra", "dev", cwd=root, timeout=600, PX_HOME=home)
    flags = ("-q", "-m", "not slow", *(f"--ignore={path}" for path in LEFT_OUT))
    done = run_px("test", "--sandbox", *flags, "tests/unit", cwd=root, check=False, timeout=900, PX_HOME=home)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert " passed" in done.stdout
    names = [path.name for path in (root / "tests").rglob("*-pytest-*.pyc")]
    assert names
    assert all(name.endswith("-px.pyc") for name in names), "a pytest of this machine would read /app in them"


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
