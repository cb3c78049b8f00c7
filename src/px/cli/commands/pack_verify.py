"""``px pack verify``: make an image again from what it says it was made from, and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError
from px.project.discovery import discover
from px.project.selection import Selection
from px.project.situation import inspect

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.oci.image import ReadImage
    from px.oci.sources import Source
    from px.project.situation import Situation
    from px.sandbox.pack import PackOptions

SUMMARY = "Make an image again from what it was made from, and compare"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Run it in the project, at the commit that the image was made from."
    places = "an archive (x.tar), an OCI layout directory, an image packed here (px.local/…), or in a registry (HOST/…)"
    parser.add_argument("image", metavar="IMAGE", help=places)
    parser.add_argument("--insecure", action="store_true", help="allow a registry without TLS")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import exclusive
    from px.oci.image import read_images
    from px.oci.sources import RegistrySource

    source = _source(args, context)
    if context.offline and isinstance(source, RegistrySource):
        raise PxError("PX923", source=args.image, problem="it is in a registry, and --offline forbids to ask one")
    images = read_images(source)
    project = discover(context.directory)
    situation = inspect(context.home, project, offline=context.offline)
    if not situation.lock_matches:
        raise PxError("PX102", lock=project.lock.name, reason="An image is made from a lock that matches the manifest.")
    lines: list[str] = []
    with exclusive(context, project.root):
        for image in images:
            # The archive may lie in the working tree: it is not part of what it was made from.
            lines += verify(context, situation, image, (Path(args.image),))
    if not context.json:
        print("\n".join(lines) or f"{args.image}: the same, layer by layer")
    context.emit(f"{args.image}: {'differs' if lines else 'the same'}", {"same": not lines, "differences": lines})
    return 1 if lines else 0


def _source(args: argparse.Namespace, context: Context) -> Source:
    """A file, an image that was packed here, or else one in a registry."""
    from px.oci.blobs import Blobs
    from px.oci.reference import LOCAL_HOST, parse
    from px.oci.sources import BlobsSource, source_of
    from px.sandbox.packed import find

    is_local = args.image.startswith(f"{LOCAL_HOST}/") and not Path(args.image).exists()
    digest = find(context.home, parse(args.image)) if is_local else None
    if digest is not None:
        return BlobsSource(args.image, Blobs(context.home), digest)
    return source_of(args.image, insecure=args.insecure)


def verify(context: Context, situation: Situation, image: ReadImage, outputs: tuple[Path, ...] = ()) -> list[str]:
    """The differences between an image and what this project gives now, in lines."""
    from px.oci.blobs import Blobs
    from px.oci.image import check_layers, compare, read_images
    from px.oci.layout import release, write_layout
    from px.oci.sources import LayoutSource
    from px.sandbox.pack import architecture_of, commit_here, pack, selection_of

    check_layers(image)
    chosen = Selection.from_json(selection_of(image.labels))
    commit = commit_here(situation.project.root)
    said = image.annotations.get("org.opencontainers.image.revision", "")
    if commit is not None and said and said != commit.revision:
        console.warn(
            f"the image was made from commit {said[:12]}, this is {commit.revision[:12]}: git checkout {said[:12]}"
        )
    options = _options(image, outputs)
    packed = pack(
        context.store, situation, chosen, options, architecture=architecture_of(image.platform), offline=context.offline
    )
    if packed.image.digest == image.digest:
        return []
    with context.store.draft() as draft:
        blobs = Blobs(context.home)
        write_layout(blobs, release(blobs, (packed.image,), ()), draft.path / "layout")
        again = read_images(LayoutSource(draft.path / "layout"))[0]
        return [line for difference in compare(image, again) for line in str(difference).splitlines()]


def _options(image: ReadImage, outputs: tuple[Path, ...]) -> PackOptions:
    """The flags that the image was packed with, read back from its config."""
    from px.sandbox.pack import LABEL, PackOptions

    config = image.config.get("config", {})
    return PackOptions(
        entrypoint=tuple(config.get("Entrypoint", ())),
        cmd=tuple(config.get("Cmd", ())),
        ports=tuple(sorted(config.get("ExposedPorts", {}))),
        labels={k: v for k, v in image.labels.items() if not k.startswith(LABEL)},
        format=image.format,
        compression=image.compression,
        outputs=outputs,
    )
