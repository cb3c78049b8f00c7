"""Metaflow's modules in compiled form, for the code package.

A package has sources only, so every task would compile what it imports of Metaflow before it does anything.  The
launcher has the compiled modules already.  They go along as files that Python takes without comparing times (which
packages do not keep) and only where its version is the one that compiled them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
from functools import cache
from pathlib import Path

PACKAGES = ("metaflow", "metaflow_extensions")
_UNCHECKED = (1).to_bytes(4, "little")


@cache
def compiled_modules() -> tuple[tuple[str, str], ...]:
    """File, and name in the package, of every module of Metaflow that this process has loaded."""
    from px.home import Home

    directory = Home.from_environment().cache("metaflow") / "bytecode"
    directory.mkdir(parents=True, exist_ok=True)
    os.utime(directory)  # in use: `px store gc` leaves it
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
    """The compiled module as the interpreter keeps it, where that is of this very source; else compiled now."""
    try:
        kept = Path(importlib.util.cache_from_source(str(source), optimization="")).read_bytes()
    except OSError:
        kept = b""
    of_source = (int(state.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (state.st_size & 0xFFFFFFFF).to_bytes(
        4, "little"
    )
    if kept[:16] == importlib.util.MAGIC_NUMBER + bytes(4) + of_source:
        return kept[16:]
    return marshal.dumps(compile(text, str(source), "exec", dont_inherit=True))
