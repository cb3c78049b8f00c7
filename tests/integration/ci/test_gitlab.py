"""The template for GitLab: its scripts run for real, in the shell of a runner, with hostile inputs too."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPO
from tests.support.index import Index
from tests.support.px import PX, run_px

INPUT = re.compile(r"\$\[\[\s*inputs\.(\w+)\s*\]\]")


def template(**given: str) -> dict[str, Any]:
    """The hidden job, with inputs filled in as GitLab does: in values, after the document was parsed."""
    spec, jobs = yaml.safe_load_all((REPO / "templates/px.yml").read_text())
    inputs = {name: row["default"] for name, row in spec["spec"]["inputs"].items()} | given

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [filled(v) for v in value]
        return INPUT.sub(lambda m: str(inputs[m[1]]), value) if isinstance(value, str) else value

    job: dict[str, Any] = filled(jobs[".px"])
    return job


def run(job: dict[str, Any], script: list[str], root: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The script of a job that extends it, as the shell of a runner gets it."""
    places = {"CI_PROJECT_DIR": str(root), "CI_BUILDS_DIR": str(tmp_path), "CI": "true"}
    variables = {k: str(v).replace("$CI_PROJECT_DIR", str(root)) for k, v in job["variables"].items()}
    lines = ["set -eo pipefail", *job["before_script"], *script]
    return subprocess.run(
        ["bash", "--noprofile", "--norc"], input="\n".join(lines) + "\n", cwd=root, capture_output=True,
        env={**os.environ, **places, **variables}, text=True, check=False, timeout=600,
    )  # fmt: skip


def without_install(job: dict[str, Any]) -> dict[str, Any]:
    """px as it is installed here: what pip does takes long and is tested in the long run."""
    return {**job, "before_script": [f'export PATH="{PX.parent}:$PATH"', *job["before_script"][3:]]}


@pytest.fixture
def locked(app: Path, index: Index) -> Path:
    subprocess.run(["git", "init", "--quiet"], cwd=app, check=True)
    run_px("sync", cwd=app)
    subprocess.run(["git", "add", "--all"], cwd=app, check=True)
    return app


def test_inputs_are_values_of_variables_only() -> None:
    _, jobs = yaml.safe_load_all((REPO / "templates/px.yml").read_text())
    job = jobs[".px"]
    assert not INPUT.search(yaml.safe_dump({k: v for k, v in job.items() if k != "variables"}))
    assert len(INPUT.findall(yaml.safe_dump(job["variables"]))) == 6


def test_a_job_on_the_host(locked: Path, tmp_path: Path) -> None:
    job = without_install(template(target="host", groups="lint", extras="more"))
    done = run(job, ["px run python -c 'import linter, extra_thing; print(6 * 7)'"], locked, tmp_path)
    assert done.stdout == "42\n", done.stderr
    assert (locked / ".px-home/store").is_dir()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=locked, capture_output=True, text=True, check=True)
    assert ".px-home" not in status.stdout, "what is kept must not make the tree a changed one"
    trimmed = run({**job, "before_script": job["before_script"][:1]}, ["px store gc --grace 7d"], locked, tmp_path)
    assert trimmed.returncode == 0, trimmed.stderr


def test_hostile_inputs(locked: Path, tmp_path: Path) -> None:
    hostile = ["$(touch ran)", "'; touch ran; '", '"; touch ran; "', "x\ntouch ran", "*"]
    for evil in hostile:
        assert run(without_install(template(directory=evil)), [], locked, tmp_path).returncode != 0
    done = run(without_install(template(target="host", groups=" ".join(hostile))), [], locked, tmp_path)
    assert done.returncode != 0
    assert done.stderr.startswith("PX100"), "px got them as names, and uv refused them"
    assert not list(locked.rglob("ran"))


@pytest.mark.slow
@pytest.mark.network
def test_a_job_in_the_sandbox(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.11"\ndependencies = ["idna"]\n'
    )
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    run_px("sync", cwd=root)
    script = ["px run --sandbox python -c 'import os, idna; print(os.listdir())'", *template()["after_script"]]
    done = run(template(requirement=str(REPO)), script, root, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pyproject.toml" in done.stdout
