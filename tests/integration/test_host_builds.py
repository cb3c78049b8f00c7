"""Packages that have no wheel, built on this machine: from git, with the project's settings, as what is locked."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.index import Index
from tests.support.px import run_px

# A build backend that needs nothing: it lies in the source itself, and computes the version as VERSION says.
BACKEND = """
import base64, hashlib, os, subprocess, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = {version}
    info = "built-%s.dist-info" % version
    files = {{
        "built.py": "VERSION = %r\\n" % version,
        info + "/METADATA": "Metadata-Version: 2.1\\nName: built\\nVersion: %s\\n" % version,
        info + "/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append("%s,sha256=%s,%d\\n" % (name, digest, len(text)))
    files[info + "/RECORD"] = "".join(rows) + info + "/RECORD,,\\n"
    wheel = "built-%s-py3-none-any.whl" % version
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel

build_editable = build_wheel
"""
FROM_TAG = 'subprocess.run(["git", "describe", "--tags", "--abbrev=0"], capture_output=True, text=True).stdout.strip()'


def write_source(root: Path, version: str, requires: str = "") -> None:
    root.mkdir()
    (root / "backend.py").write_text(BACKEND.format(version=version))
    (root / "pyproject.toml").write_text(
        f'[build-system]\nrequires = [{requires}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "built"\ndynamic = ["version"]\n'
    )


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def depend(app: Path, source: str) -> None:
    manifest = app / "pyproject.toml"
    text = manifest.read_text().replace('["hello"]', '["built"]')
    manifest.write_text(f"{text}[tool.uv.sources]\nbuilt = {source}\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A package whose version is the last tag, one commit after it was tagged."""
    root = tmp_path / "repository"
    write_source(root, FROM_TAG)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    git(root, "tag", "1.2")
    (root / "more").write_text("")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "two")
    return root


def test_a_git_dependency_has_the_version_of_its_tags(app: Path, index: Index, repository: Path) -> None:
    depend(app, f'{{ git = "{repository.as_uri()}" }}')
    run_px("sync", cwd=app)
    assert 'version = "1.2"' in (app / "uv.lock").read_text()
    assert run_px("run", "python", "-c", "import built; print(built.VERSION)", cwd=app).stdout == "1.2\n"


def test_a_commit_that_is_not_here_is_not_fetched_offline(app: Path, index: Index, repository: Path) -> None:
    depend(app, f'{{ git = "{repository.as_uri()}" }}')
    run_px("sync", cwd=app)
    elsewhere = str(app.parent / "another-home")
    done = run_px("sync", "--offline", cwd=app, check=False, PX_HOME=elsewhere)
    assert done.stderr.startswith("PX202")
    assert git(repository, "rev-parse", "HEAD") in done.stderr


def test_what_is_built_is_what_is_locked(app: Path, index: Index, tmp_path: Path) -> None:
    write_source(tmp_path / "source", 'os.environ["BUILT_VERSION"]')
    with tarfile.open(tmp_path / "built.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "source", "built-1")
    depend(app, f'{{ path = "{tmp_path / "built.tar.gz"}" }}')
    run_px("sync", cwd=app, BUILT_VERSION="1.0")
    elsewhere = str(tmp_path / "another-home")
    done = run_px("sync", cwd=app, check=False, BUILT_VERSION="1.1", PX_HOME=elsewhere)
    assert "PX204" in done.stderr
    assert "version 1.1, and the lock has 1.0" in done.stderr


@pytest.mark.parametrize("source", ['{{ path = "{archive}" }}', '{{ path = "{directory}", editable = true }}'])
def test_build_requirements_come_from_the_projects_own_index(
    app: Path, index: Index, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    write_source(tmp_path / "source", "__import__('leaf').VERSION", requires='"leaf<2"')
    with tarfile.open(tmp_path / "built.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "source", "built-1")
    depend(app, source.format(archive=tmp_path / "built.tar.gz", directory=tmp_path / "source"))
    manifest = app / "pyproject.toml"
    manifest.write_text(f'{manifest.read_text()}[[tool.uv.index]]\nurl = "{index.url}"\ndefault = true\n')
    run_px("sync", cwd=app)
    assert run_px("run", "python", "-c", "import built; print(built.VERSION)", cwd=app).stdout == "1.0\n"
