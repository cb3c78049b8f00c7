"""Pythons of this machine other than the one that runs the tests."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from px import process


@cache
def interpreters(minor: str) -> tuple[str, ...]:
    """Those of one version, such as 3.12, that run: pyenv's, then the one on PATH.

    pyenv's shims are on PATH too, and do not run a version that is not switched on.
    """
    on_path = shutil.which(f"python{minor}")
    found = [*_of_pyenv(minor), *([on_path] if on_path else [])]
    return tuple(program for program in found if process.run([program, "-I", "-c", ""]).ok)


def _of_pyenv(minor: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    try:
        return [os.fspath(path) for path in sorted(root.glob(f"versions/{minor}.*/bin/python{minor}"))]
    except PermissionError:  # it is somebody else's
        return []
