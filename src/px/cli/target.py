"""What ``px run TARGET`` means: a file, a python alias, a console script of the env, or a program on its PATH."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_PYTHON = re.compile(r"python(3(\.\d+)?)?$")
_PYTHON_FILES = (".py", ".pyw", ".pyz", ".pyc")


@dataclass(frozen=True)
class Places:
    """Where names are looked up; the same rules serve the host and the sandbox."""

    cwd: str
    bin: str
    """The env's ``bin``."""
    path: str
    """The PATH that the target will have, the env's ``bin`` first."""


def resolve(target: str, arguments: list[str], places: Places) -> list[str] | None:
    """The command line that the target stands for, or None when it stands for nothing."""
    python = os.path.join(places.bin, "python")
    file = os.path.join(places.cwd, target)
    if os.path.isfile(file):
        if target.endswith(_PYTHON_FILES) or not os.access(file, os.X_OK):
            return [python, target, *arguments]
        return [target if os.sep in target else os.path.join(".", target), *arguments]
    if os.path.isdir(file) and os.path.isfile(os.path.join(file, "__main__.py")):
        return [python, target, *arguments]
    if _PYTHON.match(target):
        alias = os.path.join(places.bin, target)
        return [alias, *arguments] if os.path.exists(alias) else None
    if os.sep in target:
        return None
    for directory in places.path.split(os.pathsep):
        candidate = os.path.join(directory, target)
        if directory and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return [candidate, *arguments]
    return None
