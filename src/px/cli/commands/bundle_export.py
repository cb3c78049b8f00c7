"""``px bundle export``: everything that the sandbox and the image need, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.flags import architectures
from px.workflow.door import permitted
from px.workflow.supply.bundle import export

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to write, such as app.bundle")
    parser.add_argument("--platform", default="", metavar="LIST", help="linux/amd64, linux/arm64 or both")
    parser.add_argument("--files", type=Path, metavar="DIR", help="put these files in too, such as the wheels of px")
    parser.epilog = (
        "The bundle is an OCI layout in a tar: skopeo and registries can carry it. On the other machine:\n"
        "px bundle import FILE, then px sync --sandbox --offline --frozen."
    )


def main(args: argparse.Namespace, context: Context) -> int:
    with permitted(context, "bundle export") as situation:
        made = export(situation, args.file, architectures(args.platform), args.files)
    message = f"{args.file}: {console.counted(len(made.objects), 'object')}, {console.size(made.size)}"
    if not args.json:
        print(f"{message}\n{made.digest}")
    details = {"file": str(args.file), "digest": made.digest, "objects": len(made.objects), "files": list(made.files)}
    emit(args, message, {**details, "size": made.size})
    return 0
