"""Running px as a user does: another process, its own home, nothing of the test's environment that matters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from px.home import Home
from px.warm.record import record_name

PX = Path(sys.executable).parent / "px"
UV = str(Path(sys.executable).parent / "uv")


def run_px(
    *args: str | Path, cwd: Path, check: bool = True, timeout: float = 300, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run ``px``; keyword arguments are environment variables."""
    done = subprocess.run(
        [PX, *args],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"px {' '.join(map(str, args))} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def log_of(root: Path, home: Home | None = None) -> Path:
    """Where px keeps the log of a project."""
    return (home or Home.from_environment()).logs / record_name(str(root)).replace(".json", ".log")


def snapshot(root: Path, *, ignore: tuple[str, ...] = (".px", ".git")) -> dict[str, Any]:
    """Every file below ``root`` with its content and mode: two are equal if nothing changed."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if relative.parts[0] in ignore:
            continue
        if path.is_symlink():
            found[str(relative)] = os.readlink(path)
        elif path.is_file():
            found[str(relative)] = (path.stat().st_mode, path.read_bytes())
    return found
