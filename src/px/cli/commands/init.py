"""``px init``: a new project with a lock and an env."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from px import console
from px.cli.commands.sync import report
from px.errors import PxError

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Start a project here"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", metavar="DIR", help="where (default: here)")
    parser.add_argument("--name", help="the project's name (default: the directory's)")
    parser.add_argument("--package", action="store_true", help="a project that is itself installed, with a src layout")
    parser.add_argument("--python", metavar="VERSION", help="the lowest Python version")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import ensure_env
    from px.project import rules, uv
    from px.store.tree import remove_tree

    rules.check_frozen("init", context.frozen_by)
    directory = context.directory / args.path if args.path else context.directory
    manifest = directory / "pyproject.toml"
    if manifest.exists():
        from px.project.manifest import Manifest

        found = Manifest.read(manifest)
        raise PxError("PX004" if found.is_project or found.workspace else "PX005", path=manifest)
    existed = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = set(directory.iterdir())
    except OSError as e:
        problem = e.strerror or str(e)
        raise PxError("PX040", option="px init", value=directory, problem=problem, example="px init my-project") from e
    flags = ["--package"] if args.package else ["--app", "--no-package"]
    flags += ["--name", args.name] if args.name else []
    flags += ["--python", args.python] if args.python else []
    try:
        uv.must(
            "start the project", "init", "--no-workspace", *flags, directory, cwd=directory, offline=context.offline,
            remedy="Choose another name: px init --name NAME",
        )  # fmt: skip
        console.info(f"Started {args.name or manifest.parent.name} at {manifest}")
        ready = ensure_env(replace(context, directory=directory), "sync")
    except BaseException:
        for path in set(directory.iterdir()) - before:
            remove_tree(path)
        if not existed:
            directory.rmdir()
        raise
    report(context, ready)
    return 0
