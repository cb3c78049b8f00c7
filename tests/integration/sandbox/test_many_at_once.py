"""Many px at once on a store in which nothing is built yet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from px.home import Home
from tests.integration.sandbox.homes import leftovers
from tests.support.px import PX

RUNS, PROJECTS = 32, 4


def test_one_build_and_as_many_successes_as_runs(native: Path, cold: Home, private_tmp: Path, tmp_path: Path) -> None:
    roots = [Path(shutil.copytree(native, tmp_path / f"copy {n}")) for n in range(PROJECTS)]
    command = [str(PX), "run", "--sandbox", "python", "-c", "import answer42; print('ran')"]
    running = [
        subprocess.Popen(
            command, cwd=roots[n % PROJECTS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(RUNS)
    ]  # fmt: skip
    ended = [process.communicate(timeout=300) for process in running]
    assert [(p.returncode, out) for p, (out, _) in zip(running, ended, strict=True)] == [(0, "ran\n")] * RUNS, ended
    said = "".join(err for _, err in ended)
    assert said.count("Building answer42") == 1
    lines = [line.partition(":")[0] for line in said.splitlines() if line.startswith("Unpacking")]
    assert len(lines) == len(set(lines)), lines
    assert "Waiting for another px process that is making" in said
    images = [p for p in (cold.sandbox / "images").iterdir() if not p.name.startswith(".")]
    assert len(images) == 1
    assert not leftovers(cold)
    assert not list(private_tmp.iterdir())
