"""Compiled modules for an image, made by the image's own interpreter so that every machine gets the same.

What a compiler emits may change with every release of it, so px's own interpreter must not do this.  A base's
interpreter runs on the host without any container, through the loader and libraries of its own tree; byte
code does not depend on the architecture, so an image for another one is served by this machine's base.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCRIPT = Path(__file__).parent / "compile_bytecode.py"
LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


@dataclass(frozen=True)
class Interpreter:
    """A Python inside a base's tree, for the architecture of this machine."""

    tree: Path
    architecture: str
    version: str
    """Major and minor version, as in the program's name."""

    def command(self) -> list[str]:
        libraries = self.tree / "usr/lib" / TRIPLETS[self.architecture]
        loader = libraries / LOADERS[self.architecture]
        program = self.tree / "usr/bin" / f"python{self.version}"
        # Isolated: no variables, no user directory, no site module; nothing is written beside the sources.
        return [str(loader), "--library-path", str(libraries), str(program), "-I", "-S", "-B"]


def is_test(path: str) -> bool:
    """Whether a module belongs to a package's own tests: importable like any other, but not worth a .pyc.

    Of numpy's they are two thirds, and 11 MB; no program imports them.
    """
    return not {"test", "tests"}.isdisjoint(path.split("/")[:-1])


def compile_sources(
    interpreter: Interpreter, sources: Sequence[tuple[str, Path]], scratch: Path
) -> Iterator[tuple[str, bytes]]:
    """The path in the image and the content of the .pyc of every (path in the image, file) that compiles."""
    from concurrent.futures import ThreadPoolExecutor

    workers = min(os.cpu_count() or 1, len(sources) // 50 + 1)
    parts = [sources[i::workers] for i in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        archives = list(pool.map(lambda i: _compile(interpreter, parts[i], scratch / f"{i}.pycs"), range(workers)))
    for archive in archives:
        yield from _read(archive.read_bytes())
        archive.unlink()


def _compile(interpreter: Interpreter, sources: Sequence[tuple[str, Path]], archive: Path) -> Path:
    lines = "".join(f"{path}\t{file}\n" for path, file in sources).encode("utf-8")
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    done = run([*interpreter.command(), SCRIPT, archive], env=environment, stdin=lines)
    if not done.ok:
        last = (done.stderr.strip() or f"it ended with {done.code}").splitlines()[-1]
        raise PxError("PX903", problem=f"the base's Python {interpreter.version} could not compile its modules: {last}")
    return archive


def _read(archive: bytes) -> Iterator[tuple[str, bytes]]:
    at, parts = 0, []
    while at < len(archive):
        size = int.from_bytes(archive[at : at + 4], "little")
        parts.append(archive[at + 4 : at + 4 + size])
        at += 4 + size
        if len(parts) == 2:
            yield parts[0].decode("utf-8"), parts[1]
            parts = []
