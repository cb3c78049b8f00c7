"""The env layer: what px adds to a run, and a sync with a warm cache against uv's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.timing import command, compare, table
from px.store.tree import remove_tree

# With what these need: a little more than 50 packages.
DEPENDENCIES = (
    *("fastapi", "uvicorn[standard]", "httpx", "sqlalchemy", "jinja2", "pydantic-settings", "celery", "rich", "boto3"),
    *("requests", "beautifulsoup4", "click", "pyyaml", "python-dotenv", "tenacity", "structlog", "alembic"),
)
PX = Path(sys.executable).parent / "px"
UV = Path(sys.executable).parent / "uv"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="px-bench-") as name:
        work = Path(name)
        project = work / "project"
        project.mkdir()
        env = {**os.environ, "PX_HOME": str(work / "home"), "NO_COLOR": "1"}
        for unwanted in ("VIRTUAL_ENV", "CI"):
            env.pop(unwanted, None)
        lines = ", ".join(f'"{d}"' for d in DEPENDENCIES)
        (project / "pyproject.toml").write_text(
            f'[project]\nname = "bench"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{lines}]\n'
        )
        steps: list[list[str | Path]] = [[UV, "lock", "-q"], [UV, "sync", "-q", "--frozen"], [PX, "sync", "-q"]]
        for argv in steps:
            subprocess.run(argv, cwd=project, env=env, check=True)
        current = Path(os.readlink(project / ".px/envs/current"))
        count = len(list(current.glob("lib/python3*/site-packages/*.dist-info")))
        _runs(project, env, current)
        _syncs(project, env, current, count)
        remove_tree(work / "home")


def _runs(project: Path, env: dict[str, str], current: Path) -> None:
    results = compare(
        {
            "python -c pass": command([current / "bin/python", "-c", "pass"], cwd=project, env=env),
            "px run python -c pass (warm)": command([PX, "run", "python", "-c", "pass"], cwd=project, env=env),
            "uv run python -c pass (warm)": command(
                [UV, "run", "-q", "--frozen", "python", "-c", "pass"], cwd=project, env=env
            ),
            "px --version": command([PX, "--version"], cwd=project, env=env),
        },
        rounds=25,
    )
    table("A warm run", results, base="python -c pass")
    plain, ours = results[0].median, results[1].median
    print(f"  px adds {(ours - plain) * 1000:.0f} ms to a run (aim: less than 60)")


def _syncs(project: Path, env: dict[str, str], current: Path, count: int) -> None:
    results = compare(
        {
            "uv sync (warm cache, no env)": command([UV, "sync", "-q", "--frozen"], cwd=project, env=env),
            "px sync (warm store, no env)": command([PX, "sync", "-q"], cwd=project, env=env),
            "uv sync (nothing to do)": command([UV, "sync", "-q"], cwd=project, env=env),
            "px sync (nothing to do)": command([PX, "sync", "-q"], cwd=project, env=env),
        },
        rounds=9,
        before={
            "uv sync (warm cache, no env)": lambda: shutil.rmtree(project / ".venv", ignore_errors=True),
            "px sync (warm store, no env)": lambda: remove_tree(current),
        },
    )
    table(f"A sync of {count} packages", results, base="uv sync (warm cache, no env)")
