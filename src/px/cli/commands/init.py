"""``px init``: a new project with a lock and an env."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from px import console
from px.cli.commands.sync import report
from px.errors import PxError
from px.project import state as rules
from px.project.context import named_directory
from px.project.discovery import PYLOCK, UV_LOCK, no_table
from px.project.manifest import Manifest
from px.store.tree import remove_tree
from px.workflow.door import ensure_host

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "A directory that has files keeps all of them as they are."
    parser.add_argument("path", nargs="?", metavar="DIR", help="where (default: here)")
    parser.add_argument("--name", help="the project's name (default: the directory's)")
    parser.add_argument("--package", action="store_true", help="a project that is itself installed, with a src layout")
    parser.add_argument("--python", metavar="VERSION", help="the lowest Python version")


def main(args: argparse.Namespace, context: Context) -> int:
    rules.check_frozen("init", context.frozen_by)
    directory = named_directory(context.directory, args.path or "")
    here, manifest = replace(context, directory=directory), directory / "pyproject.toml"
    if manifest.exists():
        found = Manifest.read(manifest)
        raise PxError("PX004", path=manifest) if found.is_project or found.workspace else no_table(manifest)
    existed = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = set(directory.iterdir())
    except OSError as e:
        problem = e.strerror or str(e)
        raise PxError("PX040", option="px init", value=directory, problem=problem, example="px init my-project") from e
    if lock := next((path for path in before if path.name in (UV_LOCK, PYLOCK)), None):
        problem, example = f"{lock.name} is there without a pyproject.toml; px would replace it", "px init my-project"
        raise PxError("PX040", option="px init", value=directory, problem=problem, example=example)
    flags = ["--package"] if args.package else ["--app", "--no-package"]
    if {path.name for path in before} - {".git"}:
        # Somebody's files: px adds a manifest to them, and what a package cannot do without.
        flags += ["--no-readme", "--vcs", "none", "--no-pin-python"] if args.package else ["--bare"]
    flags += ["--name", args.name] if args.name else []
    flags += ["--python", args.python] if args.python else []
    try:
        remedy = "Choose another name: px init --name NAME"
        here.uv_here.must("start the project", "init", "--no-workspace", *flags, directory, remedy=remedy)
        console.info(f"Started {args.name or manifest.parent.name} at {manifest}")
        ready = ensure_host(here, "sync")
    except BaseException:
        for path in set(directory.iterdir()) - before:
            remove_tree(path)
        if not existed:
            directory.rmdir()
        raise
    report(args, ready)
    return 0
