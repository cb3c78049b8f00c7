"""``px bundle import``: bring a bundle into the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.workflow.supply.bundle import take_bundle

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", help="the bundle: a file, a layout, or a name in a registry")
    parser.add_argument("--digest", default="", metavar="DIGEST", help="refuse any other than this (px bundle export)")
    parser.add_argument("--files", type=Path, metavar="DIR", help="write the further files of the bundle there")


def main(args: argparse.Namespace, context: Context) -> int:
    taken = take_bundle(context.store, args.source, args.digest, args.files)
    message = f"{console.counted(len(taken.objects), 'object')} from {args.source}"
    if not args.json:
        print(f"{message}\n{taken.digest}")
    emit(args, message, {"digest": taken.digest, "objects": len(taken.objects), "files": list(taken.files)})
    return 0
