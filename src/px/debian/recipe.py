"""The version of the code that makes trees, without importing it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_MAKERS = ("archive", "build", "bytecode", "compile_bytecode", "der", "elf", "image", "toolchain", "unpack")


@cache
def recipe() -> str:
    """A digest of the code that makes trees: when it changes, so may what the same packages give."""
    here = Path(__file__).parent
    paths = [*(here / f"{name}.py" for name in _MAKERS), *here.glob("fixups/*.py"), *here.parent.glob("data/plugins/*")]
    paths += here.parent.glob("alpine/*.py")
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
