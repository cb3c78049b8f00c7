"""What ``px sandbox diff`` compares: the user's words become a commit, an image, an ``sbx_id`` or the project."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.oci.image import read_images
from px.oci.sources import RegistrySource
from px.platforms import host_architecture
from px.project.discovery import try_discover
from px.project.git.history import resolve
from px.project.git.shadow import repository_of
from px.sandbox.image import MANIFEST, image_directory, read_image
from px.sandbox.labels import LABEL
from px.sandbox.report.contents import contents
from px.sandbox.report.diff import Side
from px.sandbox.report.trees import trees_in_image, trees_in_store
from px.workflow.compare.commits import side_of_commit, side_of_project
from px.workflow.verify_image import find_image

if TYPE_CHECKING:
    from px.home import Home
    from px.oci.image import ReadImage
    from px.project.context import Context

HERE = "."
"""Stands for the project as it is now."""
_IDS = ("sbx_id", "base_os_oid", "profile_oid")
_START = re.compile(r"[0-9a-f]{8,64}")
_EXAMPLE = "px sandbox diff HEAD~1 HEAD"


@dataclass(frozen=True)
class Wanted:
    """One side as it was understood: its kind, and the name without the kind."""

    kind: str
    name: str


def understand(context: Context, text: str) -> Wanted:
    """What kind of thing a word means.  A prefix says it: ``commit:``, ``image:`` or ``sbx:``."""
    prefix, _, rest = text.partition(":")
    if rest and prefix in ("commit", "image", "sbx"):
        return Wanted(prefix, rest)
    if text == HERE:
        return Wanted("project", text)
    found = list(_kinds(context, text))
    if len(found) > 1:
        problem = f"it can mean {' and '.join(_MEANS[kind] for kind in found)}; say which: {found[0]}:{text}"
        raise _unclear(text, problem, f"px sandbox diff {found[0]}:{text} {HERE}")
    if found:
        return Wanted(found[0], text)
    if "/" in text:  # a registry has the last word about a name
        return Wanted("image", text)
    problem = "this repository has no such commit, this machine no such file, and px has built no sandbox of that id"
    raise _unclear(text, problem, _EXAMPLE)


_MEANS = {"sbx": "a sandbox that px built", "image": "a file", "commit": "a commit"}


def _kinds(context: Context, text: str) -> list[str]:
    path = context.directory / text
    found = ["sbx"] if _START.fullmatch(text) and _built(context.home, text) else []
    found += ["image"] if path.is_file() or (path / "index.json").is_file() else []
    project = try_discover(context.directory)
    at = project.root if project is not None else context.directory
    return found + (["commit"] if repository_of(at) is not None and resolve(at, text) is not None else [])


def _unclear(value: str, problem: str, example: str) -> PxError:
    return PxError("PX040", option="px sandbox diff", value=value, problem=problem, example=example)


def find_side(context: Context, wanted: Wanted, *, insecure: bool = False) -> Side:
    """Everything that is known about one side.  Garbage collection must be off meanwhile."""
    if wanted.kind == "sbx":
        return _side_of_id(context, wanted.name)
    if wanted.kind == "image":
        return _side_of_image(context, wanted.name, insecure=insecure)
    if wanted.kind == "project":
        return side_of_project(context)
    return side_of_commit(context, wanted.name)


# --- sandboxes of this machine ----------------------------------------------------------------------------------------


def _built(home: Home, start: str) -> list[str]:
    """The ids that begin like this, of images that were built here."""
    images = image_directory(home, "x").parent
    found = images.iterdir() if images.is_dir() else ()
    return sorted(p.name for p in found if p.name.startswith(start) and (p / MANIFEST).is_file())


def _side_of_id(context: Context, start: str) -> Side:
    found = _built(context.home, start) if _START.fullmatch(start) else []
    if len(found) != 1:
        problem = f"{len(found)} sandboxes begin with it" if found else "px has built no sandbox of that id here"
        raise _unclear(start, problem, "px sandbox explain")
    image = read_image(context.store, found[0])
    if image is None:
        raise _unclear(start, "its image cannot be read", "px sync --sandbox --force")
    definition = image.definition
    return Side(
        name=found[0][:12],
        what=f"sandbox {found[0][:12]}",
        base=image.base,
        architecture=image.architecture,
        capabilities=definition.sorted_capabilities,
        ids={"sbx_id": image.sbx_id, "base_os_oid": definition.base_os_oid, "profile_oid": definition.profile_oid},
        contents=contents(trees_in_store(context.store, image.layers)),
    )


# --- images -----------------------------------------------------------------------------------------------------------


def _side_of_image(context: Context, name: str, *, insecure: bool) -> Side:
    path = context.directory / name
    source = find_image(context.home, str(path) if path.exists() else name, insecure=insecure)
    if context.offline and isinstance(source, RegistrySource):
        raise PxError("PX923", source=name, problem="it is in a registry, and --offline forbids to ask one")
    image = _this_platform(read_images(source))
    labels = image.labels
    found = {key: labels[LABEL + key] for key in _IDS if LABEL + key in labels}
    return Side(
        name=Path(name).name or name,
        what=f"image {name}",
        base=labels.get(f"{LABEL}base", "unknown base"),
        architecture=image.platform.architecture,
        capabilities=tuple(filter(None, labels.get(f"{LABEL}capabilities", "").split(","))),
        ids=found | {"digest": image.digest},
        contents=contents(trees_in_image(image)),
    )


def _this_platform(images: tuple[ReadImage, ...]) -> ReadImage:
    """The image for this machine, if there are several."""
    return next((image for image in images if image.platform.architecture == host_architecture()), images[0])
