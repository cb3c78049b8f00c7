"""An existing uv project of real size, from the real index: more than 50 packages, groups, extras, a workspace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.px import UV, run_px, snapshot

pytestmark = pytest.mark.network

ROOT = """
[project]
name = "big"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["fastapi", "uvicorn[standard]", "httpx", "sqlalchemy", "jinja2", "numpy", "worker", "pydantic-settings"]
[project.optional-dependencies]
docs = ["mkdocs-material"]
[dependency-groups]
dev = ["pytest", "pytest-xdist", "hypothesis"]
lint = ["mypy", "black"]
[tool.uv.workspace]
members = ["packages/*"]
[tool.uv.sources]
worker = { workspace = true }
"""
WORKER = """
[project]
name = "worker"
version = "0.3"
requires-python = ">=3.11"
dependencies = ["celery", "rich", "boto3"]
[project.scripts]
worker = "worker:main"
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""
IMPORTS = (
    "import fastapi, uvicorn, httpx, sqlalchemy, jinja2, numpy, worker, celery, rich, boto3, material, mypy, hypothesis"
)


@pytest.mark.slow
def test_an_existing_uv_project(tmp_path: Path) -> None:
    root = tmp_path / "big"
    (root / "packages/worker/src/worker").mkdir(parents=True)
    (root / "pyproject.toml").write_text(ROOT)
    (root / "packages/worker/pyproject.toml").write_text(WORKER)
    (root / "packages/worker/src/worker/__init__.py").write_text("def main():\n    print('working')\n")
    (root / ".gitignore").write_text("*.egg-info/\n__pycache__/\n")
    for command in ([UV, "lock", "-q"], ["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=root, check=True)
    before = snapshot(root)

    run_px("sync", "--all-groups", "--all-extras", cwd=root)
    run_px("run", "python", "-c", IMPORTS, cwd=root / "packages/worker")
    assert run_px("run", "worker", cwd=root).stdout == "working\n"
    status = json.loads(run_px("status", "--json", cwd=root).stdout)["details"]
    assert status["host"]["state"] == "WConsistent"
    listed = run_px("status", "-v", cwd=root).stdout.count("\n    ")
    assert listed >= 50
    assert "celery" in run_px("why", "kombu", cwd=root).stdout

    changed = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    assert not [line for line in changed.stdout.splitlines() if not line.startswith("A ")]
    after = {k: v for k, v in snapshot(root).items() if ".egg-info" not in k and "__pycache__" not in k}
    assert after == before

    # What uv itself would install is what px installed, version for version.
    probe = "import importlib.metadata as m; print(*{f'{d.name}=={d.version}' for d in m.distributions()}, sep='\\n')"
    ours = normalized(run_px("run", "python", "-I", "-c", probe, cwd=root).stdout)
    flags = ["--all-groups", "--all-extras", "--all-packages", "--no-annotate", "--no-hashes", "--no-header"]
    command = [UV, "export", "-q", "--frozen", "--no-emit-workspace", *flags]
    theirs = normalized(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout)
    assert ours - {"worker 0.3"} == theirs


def normalized(text: str) -> set[str]:
    """The requirements of a listing that hold on this machine, as "name version"."""
    found = [Requirement(line) for line in text.splitlines() if "==" in line]
    return {
        f"{canonicalize_name(r.name)} {str(r.specifier).removeprefix('==')}"
        for r in found
        if r.marker is None or r.marker.evaluate()
    }
