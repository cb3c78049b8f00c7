"""Runs inside the builder sandbox, with the image's python: unpacks an sdist and calls its build backend.

Never imported by px.  ``prepare`` unpacks, and answers with the build requirements and whether the source looks
like it needs more than a C compiler; ``extra`` answers with what the backend asks for beyond those; ``wheel``
builds.  ``build`` does both where the backend asks for nothing.  Answers go to a file, because builds print what
they like.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tarfile
import threading
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

ROOT = "/build"
SOURCE = os.path.join(ROOT, "source")
OUT = os.path.join(ROOT, "out")
ANSWER = os.path.join(OUT, "answer.json")
LEGACY: dict[str, object] = {
    "requires": ["setuptools>=40.8.0", "wheel"],
    "build-backend": "setuptools.build_meta:__legacy__",
}
# Sources of other languages, and build systems that look around for compilers before they use one.
MORE_THAN_C = re.compile(
    r".*\.(cc|cpp|cxx|c\+\+|C|hh|hpp|hxx|cu|rs|f|for|f90|f95)|CMakeLists\.txt|meson\.build|configure(\.ac)?"
)
TOLD_IN = re.compile(r"setup\.(py|cfg)|pyproject\.toml|.*\.(pyx|pxd)")
TOLD = re.compile(rb"c\+\+|g\+\+|cxx|-flto|-fsanitize", re.IGNORECASE)


def unpack(archive: str, members: int, size: int) -> None:
    """Unpack into SOURCE; a second directory level that only holds the project is taken away."""
    # The sandbox holds whatever the archive does, except for the disk, which is the host's.
    if archive.endswith(".zip"):
        with zipfile.ZipFile(archive) as z:
            z.extractall(SOURCE, bounded(z.infolist(), members, size))  # noqa: S202
    else:
        with tarfile.open(archive) as t:
            t.extractall(SOURCE, bounded(t, members, size))  # noqa: S202
    inside = os.listdir(SOURCE)
    if len(inside) == 1 and os.path.isdir(os.path.join(SOURCE, inside[0])):
        # SOURCE itself is a mount and cannot be replaced.  The new name is one that the archive does not have.
        level = os.path.join(SOURCE, f"px-{os.urandom(8).hex()}")
        os.rename(os.path.join(SOURCE, inside[0]), level)
        os.chmod(level, 0o755)
        for name in os.listdir(level):
            os.rename(os.path.join(level, name), os.path.join(SOURCE, name))
        os.rmdir(level)


def bounded(found: Iterable[Any], members: int, size: int) -> Iterator[Any]:
    for member in found:
        members -= 1
        size -= member.file_size if isinstance(member, zipfile.ZipInfo) else member.size
        if members < 0 or size < 0:
            sys.exit("px: the source archive has too many files, or becomes too large when it is unpacked")
        yield member


def project() -> str:
    return os.path.join(SOURCE, os.environ.get("PX_SUBDIRECTORY", ""))


def build_system() -> dict[str, object]:
    path = os.path.join(project(), "pyproject.toml")
    if not os.path.exists(path):
        return LEGACY
    with open(path, "rb") as f:
        return {**LEGACY, **tomllib.load(f).get("build-system", {})}


def is_more_than_c() -> bool:
    """Whether the source shows any sign of another language than C; wrong guesses only cost time."""
    for directory, _, names in os.walk(project()):
        for name in names:
            if MORE_THAN_C.fullmatch(name):
                return True
            if TOLD_IN.fullmatch(name):
                with open(os.path.join(directory, name), "rb") as f:
                    if TOLD.search(f.read()):
                        return True
    return False


def backend() -> object:
    table = build_system()
    for path in table.get("backend-path", []):  # type: ignore[attr-defined]
        sys.path.insert(0, os.path.join(project(), path))
    module, _, attribute = str(table["build-backend"]).partition(":")
    found: object = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


def compile_side_by_side() -> None:
    """Let setuptools compile the files of an extension on all cores; which objects come out does not change.

    Whatever a package does to how a file is compiled (psycopg2 counts them) still happens one by one: only the
    compilers that it starts run side by side, and all of them end before the extension is linked.
    """
    if "setuptools" not in sys.modules:
        return
    try:
        unix = importlib.import_module("distutils.unixccompiler").UnixCCompiler
    except ImportError:
        return
    name = "call" if hasattr(unix, "call") else "spawn"  # its older name
    stock, mine = getattr(unix, name), threading.local()  # packages may build extensions in threads (Pillow)

    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        pool = getattr(mine, "pool", None)
        if pool is None:
            return stock(self, *args, **kwargs)
        return mine.jobs.append(pool.submit(stock, self, *args, **kwargs))

    def compile_all(self: Any, sources: list[str], *args: Any, **kwargs: Any) -> Any:
        one_by_one = super(unix, self).compile
        if len(sources) < 2 or getattr(type(self), name) is not start or name in vars(self):
            return one_by_one(sources, *args, **kwargs)
        mine.jobs = jobs = list["Future[None]"]()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            mine.pool = pool
            try:
                objects = one_by_one(sources, *args, **kwargs)
            finally:
                mine.pool = None
        if any(job.exception() for job in jobs):
            return one_by_one(sources, *args, **kwargs)  # fails again, and says why without a second voice
        return objects

    if "compile" not in vars(unix):
        unix.compile = compile_all
        setattr(unix, name, start)


def settings() -> dict[str, object]:
    """What the project tells the backend."""
    told: dict[str, object] = json.loads(os.environ.get("PX_CONFIG_SETTINGS", "{}"))
    return told


def ask(hooks: object, kind: str) -> list[str]:
    found = getattr(hooks, f"get_requires_for_build_{kind}", None)
    return list(found(settings())) if found is not None else []


def make(hooks: object, kind: str) -> str:
    compile_side_by_side()
    return str(getattr(hooks, f"build_{kind}")(OUT, settings()))


def apart(do: Callable[[], object]) -> None:
    """Run a hook in a process of its own, as build frontends must; only the backend's import is shared."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        answer(do())
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(code if code > 0 else 128 - code)


def answer(value: object) -> None:
    with open(ANSWER, "w") as f:
        json.dump(value, f)


def main() -> None:
    action = sys.argv[1]
    if action == "prepare":
        if len(sys.argv) > 2:
            unpack(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        answer({"requires": build_system()["requires"], "more": is_more_than_c()})
        return
    os.chdir(project())
    sys.path.insert(0, "")
    hooks, kind = backend(), sys.argv[2]
    if action == "extra":
        answer({"requires": ask(hooks, kind)})
        return
    if action == "build":
        apart(lambda: {"requires": ask(hooks, kind)})
        with open(ANSWER) as f:
            if json.load(f)["requires"]:
                return
    apart(lambda: {"wheel": make(hooks, kind)})


if __name__ == "__main__":
    main()
