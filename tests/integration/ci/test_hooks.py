"""The pre-commit hook: a commit with an old lock or old pins is refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPO
from tests.support.index import Index
from tests.support.px import UV, run_px

(HOOK,) = yaml.safe_load((REPO / ".pre-commit-hooks.yaml").read_text())


def fresh(root: Path) -> tuple[int, str]:
    done = run_px(*HOOK["entry"].split()[1:], cwd=root, check=False)
    return done.returncode, done.stderr


def test_the_entry_says_what_is_not_fresh(app: Path, index: Index) -> None:
    assert fresh(app) == (1, "warning: The lock is missing. Bring it up to date: px sync\n")
    subprocess.run([UV, "lock", "--quiet"], cwd=app, check=True)
    assert fresh(app) == (0, ""), "whether an env is built is not the question"
    manifest = app / "pyproject.toml"
    text = manifest.read_text().replace('["hello"]', '["hello", "leaf"]')
    manifest.write_text(text + '[tool.px.sandbox]\npins = "px-pins.json"\n')
    code, said = fresh(app)
    assert code == 1
    assert "older than the manifest" in said
    assert "px-pins.json does not exist. Run 'px sandbox pin'." in said


def test_files_that_matter() -> None:
    matters = re.compile(HOOK["files"])
    assert all(matters.search(name) for name in ("pyproject.toml", "uv.lock", "a/pyproject.toml", "px-pins.json"))
    assert not any(matters.search(name) for name in ("src/app.py", "my-pyproject.toml", "README.md"))


@pytest.mark.slow
@pytest.mark.network
def test_pins_that_lack_a_capability(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.11"\ndependencies = []\n'
    )
    run_px("sync", cwd=tmp_path)
    run_px("sandbox", "pin", cwd=tmp_path)
    assert fresh(tmp_path) == (0, "")
    run_px("sandbox", "add", "postgres", cwd=tmp_path)
    code, said = fresh(tmp_path)
    assert (code, "has no pins of postgres for amd64. Run 'px sandbox pin'." in said) == (1, True)


@pytest.mark.slow
@pytest.mark.network
def test_pre_commit_itself(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.11"\n')
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    command = [UV, "tool", "run", "--native-tls", "--from", "pre-commit>=4", "pre-commit"]
    command += ["try-repo", str(REPO), "px-fresh", "--all-files"]

    def commits() -> subprocess.CompletedProcess[str]:
        subprocess.run(["git", "add", "--all"], cwd=root, check=True)
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=600)

    refused = commits()
    assert "The lock is missing" in refused.stdout, refused.stdout + refused.stderr
    assert refused.returncode == 1
    run_px("sync", cwd=root)
    accepted = commits()
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
