"""``px sandbox add``: declare capabilities in ``pyproject.toml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.errors import PxError

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "Add system capabilities to the sandbox"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "capability", nargs="+", metavar="NAME", help="a capability such as postgres (`px sandbox list` shows all)"
    )


def main(args: argparse.Namespace, context: Context) -> int:
    from px.project.discovery import discover
    from px.sandbox.edit import set_capabilities

    if context.frozen_by is not None:
        raise PxError("PX011", command="sandbox add", frozen_by=context.frozen_by)
    path = discover(context.directory).manifest.path
    added = set_capabilities(path, args.capability, enabled=True)
    message = f"Added to {path.name}: {', '.join(added)}" if added else "Already there: nothing was changed."
    if not context.json:
        print(message)
    context.emit(message, {"added": list(added), "manifest": str(path)})
    return 0
