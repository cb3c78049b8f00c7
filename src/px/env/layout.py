"""Where the files of a profile's packages go in an env: the same rules on the host and in an image."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from px import bounds, console, foreign
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from px.env.packages import Package
    from px.project.manifest import Manifest
    from px.store.objects import Store
    from px.store.tree import Entry

LARGEST_SCRIPT = 16_000_000
# setuptools' own rule: whatever Python the author has, the installed program is to use the env's.
_PYTHON = re.compile(rb"#!.*python[0-9.]*([ \t][^\r\n]*)?(?=\r?\n|$)")
MARKER = "px-env.json"
"""Written into an env of the host when it is complete."""
_INTERPRETER = re.compile(r"python(3(\.\d+)?)?")


class BadEntryPointError(Exception):
    """Why the entry points of a package are refused."""


@dataclass(frozen=True)
class EntryPoint:
    """A script that the env makes for a package."""

    name: str
    target: str
    gui: bool


@dataclass(frozen=True)
class Placed:
    """One file or link of a package: what it is in the store, and its path in the env."""

    package: str
    source: Path
    entry: Entry
    path: str


@dataclass
class Layout:
    """Everything that an env consists of, but for its interpreter and the project itself."""

    files: list[Placed] = field(default_factory=list)
    directories: set[str] = field(default_factory=set)
    scripts: dict[str, EntryPoint] = field(default_factory=dict)


def lay_out(store: Store, packages: Iterable[Package], site_packages: str) -> Layout:
    """Place every file; where two packages bring the same path, the first by name keeps it."""
    layout = Layout()
    owners: dict[str, str] = {}
    for package in packages:
        payload = store.payload("pkg-build", package.oid)
        tree = store.tree("pkg-build", package.oid)
        for entry in cast("list[Entry]", payload["tree"]):
            path = _place(str(entry[1]), site_packages)
            if path is None:
                continue
            if entry[0] == "d":
                layout.directories.add(path)
            elif owners.setdefault(path, package.name) == package.name:
                layout.files.append(Placed(package.name, tree, entry, path))
            else:
                console.detail(f"{path}: {owners[path]} and {package.name} both install it; {owners[path]}'s is used")
        for name, target, gui in cast("list[tuple[str, str, bool]]", payload["scripts"]):
            layout.scripts.setdefault(name, EntryPoint(name, target, gui))
    _refuse_clashes(layout, owners, site_packages)
    return layout


def _refuse_clashes(layout: Layout, owners: Mapping[str, str], site_packages: str) -> None:
    """A file or link of one package where another has a directory: its files would be written through the link."""
    own = {"bin", site_packages}
    while site_packages := posixpath.dirname(site_packages):
        own.add(site_packages)
    for path in sorted(owners.keys() & (layout.directories | own)):
        within = (f.package for f in layout.files if f.path.startswith(f"{path}/") and f.package != owners[path])
        raise PxError("PX206", path=path, first=owners[path], second=next(within, "the env itself"))


def _place(path: str, site_packages: str) -> str | None:
    top, _, rest = path.partition("/")
    if not rest:
        return None
    if top == "data" and f"{rest}/".startswith("lib64/"):
        rest = rest.replace("lib64", "lib", 1)  # in an env lib64 is a link to lib
    return {"lib": f"{site_packages}/", "bin": "bin/", "data": "", "include": "include/"}[top] + rest


def script_content(content: bytes, python: str) -> bytes:
    """A wheel's own script with its ``#!python`` line filled in."""
    first, newline, rest = content.partition(b"\n")
    if not first.startswith(b"#!python"):
        return content
    arguments = first.removeprefix(b"#!pythonw").removeprefix(b"#!python").strip()
    # Surrogates stand for what is not UTF-8.
    line = shebang(python, arguments.decode("utf-8", "surrogateescape"))
    return line.encode("utf-8", "surrogateescape") + newline + rest


def script_files(manifest: Manifest) -> dict[str, bytes]:
    """The project's own programs that are no entry points (setuptools' ``script-files``), name -> content.

    As a wheel would have them: with ``#!python``, which :func:`script_content` fills in.
    """
    return {name: _script_file(manifest, name, file) for name, file in sorted(manifest.script_files.items())}


def _script_file(manifest: Manifest, name: str, file: str) -> bytes:
    root = manifest.path.parent.resolve()
    path = (root / file).resolve()
    if (
        "/" in name
        or name in ("", ".", "..")
        or is_reserved("scripts", name)
        or not path.is_relative_to(root)
        or not path.is_file()
    ):
        raise PxError("PX003", path=manifest.path, problem=f"the script file {file!r} is no file of the project")
    content = foreign.read(path.parent, path.name, LARGEST_SCRIPT)
    found = _PYTHON.match(content)
    return b"#!python" + (found[1] or b"") + content[found.end() :] if found else content


def shebang(python: str, arguments: str = "") -> str:
    """A first line that works also where the path has spaces or is too long for the kernel."""
    plain = f"#!{python}" + (f" {arguments}" if arguments else "")
    if " " not in python and len(os.fsencode(plain)) <= 127:
        return plain
    command = " ".join(["'''exec'", shlex.quote(python), *arguments.split(), '"$0"', '"$@"'])
    return f"#!/bin/sh\n{command}\n' '''"


def entry_point_script(python: str, script: EntryPoint) -> str:
    """The program for a console script: import, call, exit with what it returns."""
    module, _, attribute = script.target.partition(":")
    return (
        f"{shebang(python)}\n"
        "import sys\n"
        f"from {module.strip()} import {attribute.strip().split('.')[0]}\n"
        "if __name__ == '__main__':\n"
        f"    sys.exit({attribute.strip()}())\n"
    )


def pyvenv_cfg(home: str, version: str) -> str:
    """What makes a directory a virtual environment."""
    lines = [f"home = {home}", "implementation = CPython", f"version_info = {version}"]
    return "\n".join([*lines, "include-system-site-packages = false", "px = true"]) + "\n"


def read_entry_points(text: str) -> list[EntryPoint]:
    """console_scripts and gui_scripts of an ``entry_points.txt``, sorted by name."""
    # Read as importlib.metadata reads it.  configparser needs the square of the length of a line.
    found: dict[tuple[str, str], EntryPoint] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;" and section in ("console_scripts", "gui_scripts"):
            name, _, target = (part.strip() for part in line.partition("="))
            check_script(name, target)
            found[section, name] = EntryPoint(name, target.split("[")[0].strip(), section == "gui_scripts")
    return sorted(found.values(), key=lambda e: e.name)


def check_script(name: str, target: str) -> None:
    named = name.isprintable() and "/" not in name and name not in ("", ".", "..") and len(name) <= bounds.NAME // 4
    if not named or is_reserved("scripts", name) or ":" not in target or not target.isprintable():
        raise BadEntryPointError(f"the script {name[:100]!r} = {target[:100]!r} has no safe name or target")


def read_own_entry_points(project: str, path: Path, text: str) -> list[EntryPoint]:
    """Those of a project that is installed in place: what is wrong with them is PX208."""
    try:
        return read_entry_points(text)
    except BadEntryPointError as e:
        remedy = "Correct [project.scripts] in its pyproject.toml."
        raise PxError("PX208", name=project, path=path, reason=str(e), remedy=remedy) from e


def is_reserved(scheme: str, path: str) -> bool:
    """Whether a file of a package would take the place of something that makes the env an env."""
    if scheme == "data" and path in ("bin", "include", "lib", "lib64", "pyvenv.cfg", MARKER):
        return True
    name = path.removeprefix("bin/") if scheme == "data" and path.startswith("bin/") else path
    return (scheme == "scripts" or name != path) and _INTERPRETER.fullmatch(name) is not None
