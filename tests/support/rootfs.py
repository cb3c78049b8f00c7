"""Running a program in a root file system made of layers, with nothing but the bubblewrap that px ships."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from px.engines.bubblewrap import select
from px.warm.bubblewrap import candidates
from tests.support.needs import need

if TYPE_CHECKING:
    from collections.abc import Sequence


def bubblewrap() -> str:
    need("bubblewrap")
    path = select(candidates())
    assert isinstance(path, str)
    return path


def run_in(
    layers: Sequence[Path],
    argv: Sequence[str],
    *,
    bind: Sequence[tuple[Path, str]] = (),
    network: bool = False,
    root: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` in the layers, bottom first, as uid 1000 or as a root that may write anywhere; nothing is kept."""
    command = [bubblewrap(), "--unshare-all", "--die-with-parent", "--clearenv"]
    command += ["--share-net"] if network else []
    for layer in layers:
        command += ["--overlay-src", os.fspath(layer)]
    command += ["--tmp-overlay", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for source, destination in bind:
        command += ["--ro-bind", os.fspath(source), destination]
    command += ["--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "--setenv", "HOME", "/tmp"]
    command += ["--uid", "0", "--gid", "0", "--cap-add", "ALL"] if root else ["--uid", "1000", "--gid", "1000"]
    command += ["--chdir", "/", "--", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def tar(tree: Path, target: Path) -> None:
    """A tree of the store as an archive, with modes as an image has them."""
    options = ["--owner=0", "--group=0", "--mode=u+w", "--numeric-owner"]
    subprocess.run(["tar", "-cf", str(target), *options, "-C", str(tree), "."], check=True)
