"""A sandbox image as an OCI image: what docker and podman run, and what ``px pack image`` puts the app on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.oci.blobs import Blobs, TreeRef
from px.oci.compress import GZIP
from px.oci.config import ImageSpec, LayerUse, build_image
from px.oci.documents import Platform
from px.oci.layout import release, write_archive
from px.sandbox.image import set_digest
from px.sandbox.layers.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from px.oci.config import BuiltImage
    from px.sandbox.image import Image
    from px.store.objects import Store


def layer_uses(store: Store, layers: Sequence[Layer], base: str, compression: str = GZIP) -> Iterator[LayerUse]:
    """Layers of the store as layers of an OCI image: the base and its compiled modules are one."""
    blobs = Blobs(store.home)
    groups = [(layers[:2], f"px: base {base}"), *(((layer,), f"px: {layer.what}") for layer in layers[2:])]
    for group, said in groups:
        refs = [TreeRef(layer.kind, layer.oid) for layer in group]
        yield LayerUse(blobs.store_layer(store, refs, compression=compression), said)


def encode(store: Store, image: Image, project_layer: str = "") -> BuiltImage:
    """The image, and the project's own layer on it, as config and manifest over blobs."""
    layers = [*image.layers, *([Layer.of(store, project_layer, "project")] if project_layer else [])]
    spec = ImageSpec(platform=Platform("linux", image.architecture), created=0, env=image.variables, cmd=("python",))
    built = build_image(Blobs(store.home), spec, list(layer_uses(store, layers, image.base)))
    if not project_layer:
        set_digest(store.home, image.sbx_id, built.digest)
    return built


def write(store: Store, built: BuiltImage, path: Path) -> Path:
    """The archive that ``docker load`` takes."""
    blobs = Blobs(store.home)
    write_archive(blobs, release(blobs, (built,), ()), path)
    return path
