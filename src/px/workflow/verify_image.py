"""Making an image again from what it says it was made from, and comparing: what ``px pack verify`` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError
from px.oci import catalogue
from px.oci.blobs import Blobs
from px.oci.image import check_layers, compare, read_images
from px.oci.layout import release, write_layout
from px.oci.registry.reference import parse
from px.oci.sources import BlobsSource, LayoutSource, source_of
from px.project.selection import Selection
from px.sandbox.labels import LABEL, added_to, architecture_of, has_code, selection_of, tasks_in
from px.workflow.pack import PackOptions, commit_here, pack
from px.workflow.tasks.packages import Tasks

if TYPE_CHECKING:
    from px.home import Home
    from px.oci.image import ReadImage
    from px.oci.sources import Source
    from px.project.situation import Situation


def find_image(home: Home, name: str, *, insecure: bool) -> Source:
    """A file, an image that was packed here, or else one in a registry."""
    digest = None if Path(name).exists() else _packed_here(home, name)
    if digest is not None:
        return BlobsSource(name, Blobs(home), digest)
    return source_of(name, insecure=insecure)


def _packed_here(home: Home, name: str) -> str | None:
    try:
        reference = parse(name, bare=True)
    except PxError:
        return None  # a path, perhaps
    return catalogue.find(home, reference) if reference.is_local else None


def verify_image(situation: Situation, image: ReadImage, outputs: tuple[Path, ...] = ()) -> list[str]:
    """The differences between an image and what this project gives now, in lines."""
    with console.waiting(f"Reading the layers of {image.name}"):
        check_layers(image)
    chosen = Selection.from_json(selection_of(image.labels))
    commit = commit_here(situation.project.root)
    said = image.annotations.get("org.opencontainers.image.revision", "")
    if commit is not None and said and said != commit.revision:
        console.warn(
            f"the image was made from commit {said[:12]}, this is {commit.revision[:12]}: git checkout {said[:12]}"
        )
    packed = pack(situation, chosen, _options(image, outputs), architecture_of(image.platform))
    if packed.image.digest == image.digest:
        return []
    store = situation.context.store
    with store.draft() as draft:
        blobs = Blobs(store.home)
        write_layout(blobs, release(blobs, (packed.image,), ()), draft.path / "layout")
        again = read_images(LayoutSource(draft.path / "layout"))[0]
        return [line for difference in compare(image, again) for line in str(difference).splitlines()]


def _options(image: ReadImage, outputs: tuple[Path, ...]) -> PackOptions:
    """The flags that the image was packed with, read back from its config."""
    config = image.config.get("config") or {}
    return PackOptions(
        entrypoint=tuple(config.get("Entrypoint") or ()),
        cmd=tuple(config.get("Cmd") or ()),
        ports=tuple(sorted(config.get("ExposedPorts") or {})),
        labels={k: v for k, v in image.labels.items() if not k.startswith(LABEL)},
        format=image.format,
        compression=image.compression,
        outputs=outputs,
        more=added_to(image.labels),
        tasks=_tasks(image),
        code=has_code(image.labels),
    )


def _tasks(image: ReadImage) -> Tasks | None:
    """The same packages as in the image, whatever px would choose today."""
    found = tasks_in(image.labels)
    return Tasks(*found) if found else None
