"""Sandbox images: the layers of a sandbox definition, found by ``sbx_id`` under ``PX_HOME/sandbox/images``.

An image is a manifest over objects of the store.  It is immutable, can always be made again, and is called
built only after the link check has found every library that its ELF files need.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from px import __version__, console
from px.errors import PxError
from px.sandbox.definition import SBX_VERSION, SandboxDefinition
from px.sandbox.layers import apt
from px.sandbox.layers.base import ensure_bytecode_layer
from px.sandbox.layers.env import ensure_env_layers
from px.sandbox.layers.layer import Layer
from px.sandbox.layers.python import ensure_runtime_layers
from px.sandbox.layers.system import ensure_system_layer
from px.sandbox.needs import linkcheck
from px.store.files import disk_errors, write_json
from px.warm.spec import ENV, PATH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.home import Home
    from px.sandbox.definition import Derived
    from px.store.objects import Store

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Image:
    """A built image: what it was made from, and its layers from the bottom up."""

    definition: SandboxDefinition
    base: str
    architecture: str
    layers: tuple[Layer, ...]
    variables: dict[str, str]

    @property
    def sbx_id(self) -> str:
        return self.definition.sbx_id

    @property
    def refs(self) -> tuple[str, ...]:
        return (*(layer.ref for layer in self.layers), f"profile/{self.definition.profile_oid}")


def image_directory(home: Home, sbx_id: str) -> Path:
    return home.sandbox / "images" / sbx_id


def ensure_image(derived: Derived) -> Image:
    """The image of this definition: reused if it is whole, made (and checked) if not."""
    store = derived.ground.context.store
    derived.profile.save(store)
    base, variables = derived.base, environment(dict(derived.profile.variables))
    image = Image(derived.definition, base.name, base.architecture, ensure_layers(derived), variables)
    directory = image_directory(store.home, image.sbx_id)
    if _reusable(store, directory, image):
        console.detail(f"image {image.sbx_id[:12]}: in the store")
        return image
    with disk_errors(store.home.root), store.lock(f"image-{image.sbx_id}", f"the image {image.sbx_id[:12]}"):
        if not _reusable(store, directory, image):
            console.detail(f"image {image.sbx_id[:12]}: not there, making it")
            check_links(store, image.layers, base.name, derived.manifest.disabled)
            _write(directory, image)
    return image


def ensure_layers(derived: Derived) -> tuple[Layer, ...]:
    """Every layer of the image, from the bottom up."""
    ground, base = derived.ground, derived.base
    store = ground.context.store
    system = ensure_system_layer(store, base, derived.capabilities)
    found: list[Layer | None] = [base, ensure_bytecode_layer(store, base), system]
    if system is not None and apt.CAPABILITY in derived.capabilities:
        found.append(apt.ensure_database_layer(store, base, [system]))
    found += ensure_runtime_layers(ground)
    found += ensure_env_layers(ground, derived.profile)
    return tuple(layer for layer in found if layer is not None)


def environment(profile_variables: dict[str, str]) -> dict[str, str]:
    """What every process in the image starts with; the profile's own variables win."""
    return {"PATH": PATH, "VIRTUAL_ENV": ENV, "LANG": "C.UTF-8", **profile_variables}


def _reusable(store: Store, directory: Path, image: Image) -> bool:
    """Whether the manifest is there, of this format, of these layers, and the layers are all in the store."""
    raw = _read(directory)
    return (
        raw is not None
        and raw.get("sbx_id") == image.sbx_id
        and raw.get("objects") == list(image.refs)
        and all(store.has(layer.kind, layer.oid) for layer in image.layers)
    )


def check_links(store: Store, layers: Sequence[Layer], base: str, disabled: frozenset[str]) -> None:
    """Refuse an image in which something that must load cannot: PX902, before anybody runs it."""
    with console.waiting("Checking that every library of the image can be loaded"):
        found = linkcheck.check_layers([layer.contents(store) for layer in layers], base, store.home)
    problems = linkcheck.excuse(found, disabled)
    for known, problem in zip(found, problems, strict=True):
        if known.fatal and not problem.fatal:
            why = f"[tool.px.sandbox.capabilities].{problem.capability} = false"
            console.warn(f"{problem}, which is not there because of {why}: it cannot be loaded")
        elif not problem.fatal:
            console.detail(f"link check: {problem}")
    error = linkcheck.link_error(problems, base)
    if error is not None:
        raise error
    console.detail(f"link check: {console.counted(len(layers), 'layer')}, nothing missing")


def _write(directory: Path, image: Image) -> None:
    write_json(
        directory / MANIFEST,
        {
            "sbx_id": image.sbx_id,
            "base_os_oid": image.definition.base_os_oid,
            "profile_oid": image.definition.profile_oid,
            "capabilities": sorted(image.definition.capabilities),
            "image_digest": None,
            "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "px_version": __version__,
            "sbx_version": SBX_VERSION,
            "base": image.base,
            "architecture": image.architecture,
            "layers": [{"kind": layer.kind, "oid": layer.oid, "what": layer.what} for layer in image.layers],
            "objects": list(image.refs),
            "env": image.variables,
        },
    )


def _read(directory: Path) -> dict[str, Any] | None:
    """The manifest of an image; None if there is none, PX904 if it is of another format."""
    try:
        raw = json.loads((directory / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(raw, dict) or "sbx_version" not in raw:
        return None  # damaged, or not ours: it is made again
    if raw["sbx_version"] != SBX_VERSION:
        problem = f"it is version {raw['sbx_version']}, this px makes version {SBX_VERSION}"
        raise PxError("PX904", image=directory.name, problem=problem, directory=directory)
    return raw


def read_image(store: Store, sbx_id: str) -> Image | None:
    """An image by its id, if it was built on this machine and its format is ours."""
    raw = _read(image_directory(store.home, sbx_id))
    if raw is None:
        return None
    definition = SandboxDefinition(raw["base_os_oid"], frozenset(raw["capabilities"]), raw["profile_oid"])
    layers = tuple(
        Layer(row["oid"], row["kind"], row["what"], store.tree(row["kind"], row["oid"])) for row in raw["layers"]
    )
    return Image(definition, raw["base"], raw["architecture"], layers, raw["env"])


def set_digest(home: Home, sbx_id: str, digest: str) -> None:
    """Note the OCI digest of an image that was encoded; nothing else of its manifest ever changes."""
    path = image_directory(home, sbx_id) / MANIFEST
    raw: dict[str, Any] = json.loads(path.read_bytes())
    if raw["image_digest"] != digest:
        write_json(path, raw | {"image_digest": digest})
