"""What ``px run TARGET`` means, on this machine and in a sandbox.

In this order: a file; a console script of the env, python, python3 or python3.N; a directory with a ``__main__.py``;
a program on the PATH.
"""

from __future__ import annotations

import os

from px.warm.spec import APP, ENV, PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.warm.record import BuiltSandbox

_PYTHON_FILES = (".py", ".pyw", ".pyz", ".pyc")


class OnHost:
    """Where targets are found on this machine; ``path`` is the PATH that the target will have."""

    def __init__(self, binaries: str, path: str):
        self.binaries = binaries
        self._path = path

    def inside(self, path: str) -> str | None:
        return path

    def has(self, path: str) -> bool:
        return os.path.isfile(path) and os.access(path, os.X_OK)

    @property
    def programs(self) -> Sequence[str]:
        return [directory for directory in self._path.split(os.pathsep) if directory]


class InSandbox:
    """Where targets are found in a project's sandbox: in the working tree, and in the layers."""

    binaries = f"{ENV}/bin"
    programs = (*PROGRAMS, "/sbin", "/bin")  # links to the others, except on Alpine

    def __init__(self, built: BuiltSandbox):
        self._root, self._layers = built.root, built.layers

    def inside(self, path: str) -> str | None:
        """Where a path of the host is in the sandbox; None if it is not part of the project."""
        for candidate in (path, os.path.realpath(path)):
            for root in (self._root, os.path.realpath(self._root)):
                if candidate == root:
                    return APP
                if candidate.startswith(root + os.sep):
                    return APP + candidate[len(root) :]
        return None

    def has(self, path: str) -> bool:
        return any(os.path.lexists(layer + path) for layer in reversed(self._layers))

    def lacks_interpreter(self, target: str) -> str | None:
        """The program that the first line of a script of the project names, if the sandbox has no such program."""
        file = os.path.join(os.getcwd(), target)
        program = interpreter_of(file) if self.inside(file) and os.access(file, os.X_OK) else None
        if program is None or target.endswith(_PYTHON_FILES):
            return None
        # Programs of capabilities are in layers of their own, where /bin is no link to /usr/bin.
        there = self.has(program) or self.has(f"/usr{program}") or program.startswith(APP)
        return None if there else program


def interpreter_of(file: str) -> str | None:
    """The program that a script's first line (#!) names; None if it is no script."""
    try:
        with open(file, "rb") as f:
            first = f.read(256).partition(b"\n")[0]
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None


def resolve(target: str, arguments: Sequence[str], place: OnHost | InSandbox) -> list[str] | None:
    """The command line that the target stands for, or None when it stands for nothing."""
    python = os.path.join(place.binaries, "python")
    file = os.path.join(os.getcwd(), target)
    there = place.inside(file)
    # A relative path stays as it was typed: the target starts in the same directory.
    word = there if os.path.isabs(target) else target
    if there is not None and word is not None and os.path.isfile(file):
        if target.endswith(_PYTHON_FILES) or not os.access(file, os.X_OK):
            return [python, word, *arguments]
        return [word if os.sep in word else os.path.join(".", word), *arguments]
    # Many a project has its code in a directory with the name of its console script.
    named = os.sep not in target and target not in ("", ".", "..")
    if named and place.has(f"{place.binaries}/{target}"):
        return [f"{place.binaries}/{target}", *arguments]
    if there is not None and word is not None and os.path.isfile(os.path.join(file, "__main__.py")):
        return [python, word, *arguments]
    if not named or is_python(target):
        return [target, *arguments] if os.path.isabs(target) and place.has(target) else None
    for directory in place.programs:
        if place.has(f"{directory}/{target}"):
            return [f"{directory}/{target}", *arguments]
    return None


def is_python(target: str) -> bool:
    """python, python3 and python3.N."""
    version = target.removeprefix("python")
    return version != target and (version in ("", "3") or (version[:2] == "3." and version[2:].isdecimal()))
