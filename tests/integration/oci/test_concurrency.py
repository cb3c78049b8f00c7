"""Many px processes and one blob store: packed once, whole or not there, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

from px.oci.blobs import Blobs
from tests.conftest import REPO
from tests.unit.oci.images import Files, make_image, noise

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home

PROGRAM = """
import sys
from pathlib import Path
from px import console
from px.home import Home
from tests.integration.oci.test_concurrency import APP, base
from tests.unit.oci.images import make_image
console.settings.level = console.VERBOSE
print(make_image(Home(Path(sys.argv[1])), base(), APP)[1].digest)
"""
APP = Files({"main.py": b"print()\n"})


@cache
def base() -> Files:
    """Large enough that packing it can be interrupted."""
    return Files({"large": noise(60_000_000), "text": b"text " * 2_000_000})


def start(home: Home) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home.root)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_three_at_once_pack_once(home: Home) -> None:
    ended = [process.communicate(timeout=120) for process in [start(home) for _ in range(3)]]
    assert len({out for out, _ in ended}) == 1
    made = [line for _, err in ended for line in err.splitlines() if " packed to " in line]
    assert len(made) == 2, "two layers, each packed by one process"


def test_a_process_killed_while_it_packs_leaves_nothing_in_view(home: Home) -> None:
    base().store_in(home)
    blobs = Blobs(home)
    process = start(home)
    try:
        assert _packing(home), "it never began to pack"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert [blobs.problems(digest) for digest in blobs.digests() if blobs.problems(digest)] == []
    _, image = make_image(home, base(), APP)
    assert all(blobs.problems(digest) == [] for digest in image.blob_digests())
    assert [p for p in home.tmp.iterdir() if (p / "data").exists()] == [], "what the killed process left was swept"


def _packing(home: Home) -> bool:
    for _ in range(3000):
        if any(_size(path / "data") > 1_000_000 for path in home.tmp.glob("*") if path.is_dir()):
            return True
        time.sleep(0.01)
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
