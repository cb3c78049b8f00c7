"""Compiles the Python modules of an image, with the image's own interpreter.

The interpreter that runs px cannot do this: two releases of Python may compile the same source to different byte code,
and then the image would depend on the host.  The base's interpreter runs on the host without a container, through the
loader and libraries of its own tree.  Byte code is the same for every architecture, so this machine's base also
compiles for images of other architectures.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.platforms import ARCHITECTURES
from px.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCRIPT = Path(__file__).parent / "compile_bytecode.py"


@dataclass(frozen=True)
class Compiler:
    """The Python in the tree of a base for this machine's architecture."""

    tree: Path
    architecture: str
    version: str
    """Major and minor version, such as 3.11, as in the name of the program."""
    is_musl: bool = field(default=False, kw_only=True)
    """Whether its C library is musl, as in Alpine, and not glibc."""

    def command(self) -> list[str]:
        loader, libraries = self._musl() if self.is_musl else self._glibc()
        program = self.tree / "usr/bin" / f"python{self.version}"
        # The tree is not at / here, so the program cannot find its loader and libraries by itself: ld.so starts it.
        # -I and -S keep the host's variables, user directory and site-packages out; -B writes no .pyc by itself.
        return [str(loader), "--library-path", libraries, str(program), "-I", "-S", "-B"]

    def _glibc(self) -> tuple[Path, str]:
        architecture = ARCHITECTURES[self.architecture]
        libraries = self.tree / "usr/lib" / architecture.triplet
        return libraries / architecture.loader, str(libraries)

    def _musl(self) -> tuple[Path, str]:
        loader = self.tree / "lib" / ARCHITECTURES[self.architecture].musl_loader
        return loader, f"{self.tree}/lib:{self.tree}/usr/lib"


def is_test(path: str) -> bool:
    """Whether a module belongs to a package's own tests.

    They get no .pyc, because no program imports them; they can still be imported.  In numpy their .pyc files are two
    thirds of all, and 11 MB.
    """
    return not {"test", "tests"}.isdisjoint(path.split("/")[:-1])


def compile_sources(
    compiler: Compiler, sources: Sequence[tuple[str, Path]], scratch: Path
) -> Iterator[tuple[str, bytes]]:
    """Compile ``sources``, pairs of path in the image and file to read.

    Yields path and content of each .pyc.  A file that is not valid Python has none.
    """
    from concurrent.futures import ThreadPoolExecutor

    # An interpreter takes time to start: one for about every 50 files, and not more than there are cores.
    workers = min(os.cpu_count() or 1, len(sources) // 50 + 1)
    # Every n-th file, so that large packages are spread over the workers.
    parts = [sources[i::workers] for i in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        archives = list(pool.map(lambda i: _compile(compiler, parts[i], scratch / f"{i}.pycs"), range(workers)))
    for archive in archives:
        yield from _read(archive.read_bytes())
        archive.unlink()


def _compile(compiler: Compiler, sources: Sequence[tuple[str, Path]], archive: Path) -> Path:
    lines = "".join(f"{path}\t{file}\n" for path, file in sources).encode("utf-8")
    # C.UTF-8: the interpreter opens files whose names are not ASCII by their UTF-8 names, whatever the host's locale.
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    done = run([*compiler.command(), SCRIPT, archive], env=environment, stdin=lines, doing="Compiling Python modules")
    if not done.ok:
        last = (done.stderr.strip() or f"it ended with {done.code}").splitlines()[-1]
        for code in (errno.ENOSPC, errno.EDQUOT):
            if f"[Errno {code}]" in last:  # a full disk is the same to the user, whoever wrote to it
                raise OSError(code, os.strerror(code), os.fspath(archive))
        raise PxError("PX903", problem=f"the base's Python {compiler.version} could not compile its modules: {last}")
    return archive


def _read(archive: bytes) -> Iterator[tuple[str, bytes]]:
    # The format is described in compile_bytecode.py: pairs of name and content, each after its length.
    at, parts = 0, []
    while at < len(archive):
        size = int.from_bytes(archive[at : at + 4], "little")
        parts.append(archive[at + 4 : at + 4 + size])
        at += 4 + size
        if len(parts) == 2:
            yield parts[0].decode("utf-8"), parts[1]
            parts = []
