"""What ``px run TARGET`` means: a file, a python alias, a console script of the env, or a program on its PATH."""

import os

_PYTHON_FILES = (".py", ".pyw", ".pyz", ".pyc")


def resolve(target: str, arguments: "list[str]", *, cwd: str, binaries: str, path: str) -> "list[str] | None":
    """The command line that the target stands for, or None when it stands for nothing.

    ``binaries`` is the env's ``bin``; ``path`` the PATH that the target will have, with ``binaries`` first.
    """
    python = os.path.join(binaries, "python")
    file = os.path.join(cwd, target)
    if os.path.isfile(file):
        if target.endswith(_PYTHON_FILES) or not os.access(file, os.X_OK):
            return [python, target, *arguments]
        return [target if os.sep in target else os.path.join(".", target), *arguments]
    if os.path.isfile(os.path.join(file, "__main__.py")):
        return [python, target, *arguments]
    if is_python(target):
        alias = os.path.join(binaries, target)
        return [alias, *arguments] if os.path.exists(alias) else None
    if os.sep in target:
        return None
    for directory in path.split(os.pathsep):
        candidate = os.path.join(directory, target)
        if directory and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return [candidate, *arguments]
    return None


def is_python(target: str) -> bool:
    """python, python3 and python3.N."""
    version = target.removeprefix("python")
    return version != target and (version in ("", "3") or (version[:2] == "3." and version[2:].isdecimal()))
