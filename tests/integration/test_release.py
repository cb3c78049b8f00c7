"""What is published: the same bytes wherever and whenever they are made, and everything that an installation needs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPO
from tests.integration.ci.steps import EXPRESSION
from tests.support.px import UV
from tests.support.users import ORDINARY
from tools import release

LONG_AGO = 1_000_000_000


def test_metaflow_sees_this_installation_as_a_distribution() -> None:
    """An editable one too: otherwise the extension is a stray directory without a version."""
    assert "metaflow_extensions" in (importlib.metadata.distribution("px-sandbox").read_text("top_level.txt") or "")
    code = "from metaflow.extension_support import dump_module_info; print(list(dump_module_info()[1][0]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "px-sandbox" in done.stdout


def copied(to: Path) -> Path:
    """The files of the repository, without what lies around beside them."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    for name in names:
        if (REPO / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, to / name)
    return to


def disturb(root: Path) -> None:
    """Other times, modes and owners, and the rubbish that a working tree has."""
    for path in sorted(root.rglob("*"), reverse=True):
        path.chmod(path.stat().st_mode & 0o700 | 0o060)  # as a umask of 007 would leave them
        os.utime(path, (LONG_AGO, LONG_AGO))
        if os.geteuid() == 0:
            os.chown(path, ORDINARY, ORDINARY)
    (root / "src/px/__pycache__").mkdir()
    (root / "src/px/__pycache__/console.cpython-311.pyc").write_bytes(b"old")
    (root.parent / ".gitignore").write_text("src/\n")


def build(root: Path, out: Path, *args: str, umask: int = 0o022, **env: str) -> dict[str, str]:
    """Build, and the sha256 of what came of it by name."""
    command = [UV, "build", "--quiet", "--native-tls", "--out-dir", str(out), *args, str(root)]
    subprocess.run(command, env={**os.environ, **env}, umask=umask, check=True, timeout=300)
    made = [path for path in out.iterdir() if path.suffix in {".whl", ".gz"}]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made}


@pytest.mark.slow
@pytest.mark.network
def test_two_builds_are_one(tmp_path: Path) -> None:
    """Another path, time, umask, time zone, locale, hash seed and order of files: the same sdist and wheel."""
    first = build(copied(tmp_path / "one"), tmp_path / "out1", TZ="UTC", LC_ALL="C.UTF-8", PYTHONHASHSEED="1")
    other = copied(tmp_path / "far" / "away from" / "two")
    disturb(other)
    env = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "2", "HOME": str(tmp_path), "USER": "somebody"}
    again = build(other, tmp_path / "out2", umask=0o077, **env)
    assert len(first) == 2
    assert again == first
    # `uv build` makes the wheel of the sdist; here it is made of the tree.
    tree = build(copied(tmp_path / "three"), tmp_path / "out3", "--wheel")
    assert tree.items() <= first.items()


@pytest.mark.slow
@pytest.mark.network
def test_the_wheel_installs_what_px_needs(tmp_path: Path) -> None:
    build(copied(tmp_path / "tree"), tmp_path / "out", "--wheel")
    (wheel,) = (tmp_path / "out").glob("*.whl")
    source = {str(p.relative_to(REPO / "src")) for p in (REPO / "src").rglob("*") if p.is_file()}
    wanted = {name for name in source if "__pycache__" not in name and ".egg-info" not in name}
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    install = [UV, "pip", "install", "--quiet", "--native-tls", "--python", str(tmp_path / "venv/bin/python")]
    subprocess.run([*install, str(wheel)], check=True, timeout=300)
    px = tmp_path / "venv/bin/px"
    assert px.read_text().startswith(f"#!{tmp_path}/venv/bin/python")
    said = subprocess.run([px, "sandbox", "list"], capture_output=True, text=True, check=True).stdout
    assert "postgres" in said


# --- one command -----------------------------------------------------------------------------------------------

CHANGELOG = "# Changelog\n\n## 2.0 (unreleased)\n\n* New.\n\n## 1.0 (unreleased)\n\n* First.\n"


def test_the_changelog_of_a_release() -> None:
    text = release.dated(CHANGELOG, "2.0", "2026-01-02")
    assert "## 2.0 (2026-01-02)\n\n* New." in text
    assert "## 1.0 (unreleased)" in text
    assert release.notes(text, "2.0") == "px 2.0\n\n* New.\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with what a release touches."""
    root = tmp_path / "clone"
    (root / "src/px").mkdir(parents=True)
    (root / "src/px/__init__.py").write_text('__version__ = "1.0"\n')
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    identity = ["-c", "user.name=px", "-c", "user.email=px@example.org"]
    for command in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message", "first"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


@pytest.mark.parametrize(
    ("version", "said"), [("0.9", "older"), ("2.0.0-1", "write it as"), ("two", "Invalid"), ("2;ls", "Invalid")]
)
def test_a_version_that_cannot_be_released(clone: Path, version: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        release.check(clone, version)


def test_a_tree_that_cannot_be_released(clone: Path) -> None:
    release.check(clone, "2.0")
    subprocess.run(["git", "tag", "v2.0"], cwd=clone, check=True)
    with pytest.raises(SystemExit, match="a tag v2"):
        release.check(clone, "2.0")
    (clone / "new").write_text("")
    with pytest.raises(SystemExit, match="clean tree"):
        release.check(clone, "2.1")


@pytest.mark.slow
@pytest.mark.network
def test_make_release(tmp_path: Path) -> None:
    """The whole of it, in a copy: version, changelog, commit, tag, and archives with that version."""
    root = copied(tmp_path / "copy")
    env = {f"GIT_{who}_{what}": "px@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **env, "PYTHONPATH": str(root / "src")}
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "first"]):
        subprocess.run(["git", *command], cwd=root, env=env, check=True)
    command = [sys.executable, "tools/release.py", "99.1.0"]
    said = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^[0-9a-f]{64}  dist/px_sandbox-99\.1\.0-py3-none-any\.whl$", said, re.MULTILINE)
    assert '__version__ = "99.1.0"' in (root / "src/px/__init__.py").read_text()
    shown = subprocess.run(["git", "show", "v99.1.0"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert "Release 99.1.0" in shown
    assert "px 99.1.0" in shown
    left = subprocess.run(["git", "status", "--porcelain", "src", "docs"], cwd=root, capture_output=True, check=True)
    assert left.stdout == b""


@pytest.mark.parametrize("path", sorted((REPO / ".github/workflows").glob("*.yml")), ids=lambda p: p.stem)
def test_workflows_pin_what_they_use_and_paste_nothing(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}, "a job gets what it names, and nothing else"
    for job in workflow["jobs"].values():
        assert "permissions" in job
        for step in job["steps"]:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40))
            assert not EXPRESSION.search(step.get("run", ""))
            subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True)
