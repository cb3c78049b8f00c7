"""The layers that a report looks into: those of the store, and those of an image that was packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.oci.image import Keep, layer_files
from px.sandbox.report.contents import Tree, describes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from px.oci.image import ReadImage
    from px.sandbox.layers.layer import Layer
    from px.store.objects import Store

# The compiled modules of the base are a layer of their own in the store, and part of the base in an image.
_SAME = {"bytecode": "base"}


def trees_in_store(store: Store, layers: Iterable[Layer]) -> list[Tree]:
    """Layers of the store, from the bottom up."""
    return [Tree(_SAME.get(layer.what, layer.what), *_from_store(store, layer)) for layer in layers]


def _from_store(store: Store, layer: Layer) -> tuple[Mapping[str, int], Mapping[str, str]]:
    sizes = {str(entry[1]): int(entry[3]) for entry in layer.entries(store) if entry[0] == "f"}
    wanted = [path for path in sizes if describes(path)]
    return sizes, {path: (layer.tree / path).read_text("utf-8", "replace") for path in wanted}


def trees_in_image(image: ReadImage) -> list[Tree]:
    """Layers of an image; each is read in full and compared with its digest."""
    return list(_from_image(image))


def _from_image(image: ReadImage) -> Iterator[Tree]:
    with console.progress(f"Reading {image.name}", sum(layer.size for layer in image.layers)) as bar:
        for number, layer in enumerate(image.layers, 1):
            keep = Keep(describes)
            files = layer_files(layer, image.name, keep)
            sizes = {path: file.size for path, file in files.items() if file.kind == "file"}
            texts = {path: content.decode("utf-8", "replace") for path, content in keep.contents.items()}
            bar.advance(layer.size)
            yield Tree(_called(layer.created_by, number), sizes, texts)


def _called(created_by: str, number: int) -> str:
    """What the layer is: px says so in the history; other tools write commands there."""
    if not created_by.startswith("px: "):
        return f"layer {number}"
    what = created_by.removeprefix("px: ")
    return "base" if what.startswith("base ") else what
