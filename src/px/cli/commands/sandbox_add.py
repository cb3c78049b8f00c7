"""``px sandbox add``: declare capabilities in ``pyproject.toml``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.errors import PxError
from px.sandbox.edit import set_capabilities

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "capability", nargs="+", metavar="NAME", help="a capability such as postgres (`px sandbox list` shows all)"
    )


def main(args: argparse.Namespace, context: Context) -> int:
    if context.frozen_by is not None:
        raise PxError("PX011", command="sandbox add", frozen_by=context.frozen_by)
    path = context.project.manifest.path
    added = set_capabilities(path, args.capability, enabled=True)
    message = f"Added to {shown(path, context)}: {', '.join(added)}" if added else "Already there: nothing was changed."
    if not args.json:
        print(message)
    emit(args, message, {"added": list(added), "manifest": str(path)})
    return 0


def shown(path: Path, context: Context) -> str:
    """The manifest as a person knows it: by its name where the command was given, else by its whole path."""
    return path.name if path.parent == Path.cwd() == context.directory else str(path)
