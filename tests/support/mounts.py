"""Mounts that tests make, and those that container engines leave behind."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import need


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A disk that is soon full; ``size`` as ``mount`` takes it."""
    need("root")
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    subprocess.run(command, capture_output=True, check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def remove_with_mounts(directory: Path) -> None:
    """Remove a directory in which something may still be mounted, the innermost first."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = line.split()[4]
        if place == str(directory) or place.startswith(f"{directory}/"):
            subprocess.run(["umount", "-l", place], check=False)
    shutil.rmtree(directory)
