"""Packages without wheels: built in the sandbox by px, beside uv's builds on this machine.

Neither has a built wheel.  Both have the build requirements.  uv forgets the sdists with the wheels and fetches them
again; px's side includes the image and its link check.  So name a package that takes a while to compile.
``PX_BENCH_BUILDS=lxml`` names other packages; the host needs their headers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.timing import command, compare, table
from px.store.tree import remove_tree

PACKAGES = os.environ.get("PX_BENCH_BUILDS", "markupsafe msgpack wrapt coverage").split()
PX = Path(sys.executable).parent / "px"
UV = Path(sys.executable).parent / "uv"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="px-bench-") as name:
        work = Path(name)
        project, home = work / "project", work / "home"
        project.mkdir()
        names = ", ".join(f'"{p}"' for p in PACKAGES)
        (project / "pyproject.toml").write_text(
            '[project]\nname = "bench"\nversion = "1"\nrequires-python = "==3.11.*"\n'
            f"dependencies = [{names}]\n[tool.uv]\nno-binary-package = [{names}]\n"
        )
        env = {**os.environ, "PX_HOME": str(home), "UV_CACHE_DIR": str(work / "uv"), "NO_COLOR": "1"}
        for unwanted in ("VIRTUAL_ENV", "CI"):
            env.pop(unwanted, None)

        def forget_uv() -> None:
            shutil.rmtree(project / ".venv", ignore_errors=True)
            subprocess.run([UV, "cache", "clean", "-q", *PACKAGES], cwd=project, env=env, check=True)

        def forget_px() -> None:
            for place in ("store/objects/pkg-build", "store/index/pkg-build", "sandbox", "refs"):
                remove_tree(home / place)

        contenders = {
            "uv sync, on this machine": command([UV, "sync", "-q", "--frozen"], cwd=project, env=env),
            "px sync --sandbox, in the sandbox": command([PX, "sync", "-q", "--sandbox"], cwd=project, env=env),
        }
        steps: list[list[str | Path]] = [
            [UV, "lock", "-q"], [UV, "sync", "-q", "--frozen"], [PX, "sync", "-q", "--sandbox"],
        ]  # fmt: skip
        for argv in steps:
            subprocess.run(argv, cwd=project, env=env, check=True)
        before = dict(zip(contenders, (forget_uv, forget_px), strict=True))
        results = compare(contenders, rounds=2, before=before)
        table(f"{len(PACKAGES)} sdists built ({', '.join(PACKAGES)})", results, base="uv sync, on this machine")
        remove_tree(home)
