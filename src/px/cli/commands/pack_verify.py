"""``px pack verify``: make an image again from what it says it was made from, and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.errors import PxError
from px.oci.image import read_images
from px.oci.sources import RegistrySource
from px.project.situation import inspect
from px.project.state import Target
from px.workflow.door import exclusive, serving
from px.workflow.pack import check_clean
from px.workflow.verify_image import find_image, verify_image

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Run it in the project, at the commit that the image was made from."
    places = "an archive (x.tar), an OCI layout directory, an image packed here (px.local/…), or in a registry (HOST/…)"
    parser.add_argument("image", metavar="IMAGE", help=places)
    parser.add_argument("--insecure", action="store_true", help="allow a registry without TLS")


def main(args: argparse.Namespace, context: Context) -> int:
    source = find_image(context.home, args.image, insecure=args.insecure)
    if context.offline and isinstance(source, RegistrySource):
        raise PxError("PX923", source=args.image, problem="it is in a registry, and --offline forbids to ask one")
    images = read_images(source)
    situation = inspect(serving(context, Target.SANDBOX))
    if not situation.lock_matches:
        reason = "An image is made from a lock that matches the manifest."
        raise PxError("PX102", lock=context.project.lock.name, reason=reason)
    lines: list[str] = []
    with exclusive(context):
        for image in images:
            # The archive may lie in the working tree: it is not part of what it was made from.
            lines += verify_image(situation, image, (Path(args.image),))
    if lines:
        check_clean(context.project, allow_dirty=True, outputs=(Path(args.image),), warn=False)
        console.info(f"{args.image} differs (-: only in the image, +: only in what is made now)")
    if not args.json:
        print("\n".join(lines) or f"{args.image}: the same, layer by layer")
    emit(args, f"{args.image}: {'differs' if lines else 'the same'}", {"same": not lines, "differences": lines})
    return 1 if lines else 0
