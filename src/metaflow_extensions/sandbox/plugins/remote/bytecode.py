"""Metaflow's modules in compiled form, for the code package.

A code package has only sources, so every task would first compile what it imports of Metaflow.  The run has compiled
these modules already.  Python uses the compiled files if its version is the one that made them.  It does not compare
their times with those of the sources, because a code package does not keep times.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import struct
import sys
from functools import cache
from pathlib import Path

PACKAGES = ("metaflow", "metaflow_extensions")
# The flag of PEP 552 that tells Python not to look at the source.
_UNCHECKED = (1).to_bytes(4, "little")


@cache
def compiled_modules() -> tuple[tuple[str, str], ...]:
    """Every module of Metaflow that this process has loaded: its compiled file, and that file's name in the package."""
    from px.home import Home

    directory = Home.from_environment().cache("metaflow") / "bytecode"
    directory.mkdir(parents=True, exist_ok=True)
    os.utime(directory)  # tells `px store gc` that it is in use
    found = []
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.partition(".")[0] not in PACKAGES or spec is None or spec.name != name or not spec.origin:
            continue
        path = name.replace(".", "/") + ("/__init__.py" if spec.submodule_search_locations is not None else ".py")
        if spec.origin.endswith(f"/{path}") and os.path.isfile(spec.origin):
            file = _compiled(Path(spec.origin), path, directory)
            found.append((str(file), importlib.util.cache_from_source(path, optimization="")))
    return tuple(found)


def _compiled(source: Path, name: str, directory: Path) -> Path:
    from px.store.files import write_atomically

    state = source.stat()
    facts = (name, str(source), state.st_mtime_ns, state.st_size, importlib.util.MAGIC_NUMBER)
    path = directory / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}.pyc"
    if not path.exists():
        text = source.read_bytes()
        head = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(text)
        write_atomically(path, head + _code(source, text, state), durable=False)
    return path


def _code(source: Path, text: bytes, state: os.stat_result) -> bytes:
    """The interpreter's own compiled file, if it belongs to this very source.  Otherwise the source is compiled."""
    try:
        kept = Path(importlib.util.cache_from_source(str(source), optimization="")).read_bytes()
    except OSError:
        kept = b""
    # The head of such a file: Python's version, no flags, and the time and size of the source (PEP 552).
    head = struct.pack("<III", 0, int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)
    if kept[:16] == importlib.util.MAGIC_NUMBER + head:
        return kept[16:]
    return marshal.dumps(compile(text, str(source), "exec", dont_inherit=True))
