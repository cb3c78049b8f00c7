"""A sandbox image as an OCI image: what docker and podman run, and what ``px pack image`` puts the app on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.oci.blobs import Blobs, TreeRef
from px.oci.compress import GZIP
from px.oci.config import ImageSpec, LayerUse, build_image
from px.oci.documents import Platform
from px.oci.layout import release, write_archive
from px.sandbox.image import read_image, set_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from px.oci.config import BuiltImage
    from px.store.objects import Store


def layer_uses(
    store: Store, layers: Sequence[tuple[str, str, str]], base: str, *, compression: str = GZIP
) -> Iterator[LayerUse]:
    """(kind, oid, what) rows as layers of an OCI image: the base and its compiled modules are one."""
    blobs = Blobs(store.home)
    first, second, *rest = layers
    groups = [((first, second), f"px: base {base}"), *(((row,), f"px: {row[2]}") for row in rest)]
    for rows, said in groups:
        refs = [TreeRef(kind, oid) for kind, oid, _ in rows]
        yield LayerUse(blobs.store_layer(store, refs, compression=compression), said)


def encode(store: Store, sbx_id: str, project_layer: str = "") -> BuiltImage | None:
    """The image with this id, and the project's own layer on it, as config and manifest over blobs."""
    found = read_image(store.home, sbx_id)
    if found is None:
        return None
    rows = [*found.layers, *([("layer", project_layer, "project")] if project_layer else [])]
    spec = ImageSpec(platform=Platform("linux", found.architecture), created=0, env=found.variables, cmd=("python",))
    built = build_image(Blobs(store.home), spec, list(layer_uses(store, rows, found.base)))
    if not project_layer:
        set_digest(store.home, sbx_id, built.digest)
    return built


def write(store: Store, built: BuiltImage, path: Path) -> Path:
    """The archive that ``docker load`` takes."""
    blobs = Blobs(store.home)
    write_archive(blobs, release(blobs, (built,), ()), path)
    return path
