"""Sandbox images: the layers of a sandbox definition, found by ``sbx_id`` under ``PX_HOME/sandbox/images``.

An image is a manifest over objects of the store.  It is immutable, can always be made again, and is called
built only after the link check has found every library that its ELF files need.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import __version__, console
from px.errors import PxError
from px.sandbox import linkcheck, merged
from px.sandbox.definition import SBX_VERSION, SandboxDefinition
from px.sandbox.envlayer import PREFIX
from px.store.files import disk_errors, write_json
from px.store.objects import tree_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.env.profile import Profile
    from px.home import Home
    from px.sandbox.bases import Base, Layer
    from px.sandbox.manifest import SandboxManifest
    from px.store.objects import Store

MANIFEST = "manifest.json"
PATH = f"/{PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """A built image: what it was made from, and its layers from the bottom up."""

    definition: SandboxDefinition
    base: str
    architecture: str
    layers: tuple[tuple[str, str, str], ...]
    """(kind, oid, what) of each layer."""
    variables: dict[str, str]

    @property
    def sbx_id(self) -> str:
        return self.definition.sbx_id

    @property
    def refs(self) -> tuple[str, ...]:
        profile = f"profile/{self.definition.profile_oid}"
        return (*(f"{kind}/{oid}" for kind, oid, _ in self.layers), profile)

    def trees(self, store: Store) -> tuple[Path, ...]:
        return tuple(store.tree(kind, oid) for kind, oid, _ in self.layers)


def image_directory(home: Home, sbx_id: str) -> Path:
    return home.sandbox / "images" / sbx_id


def environment(profile_variables: dict[str, str]) -> dict[str, str]:
    """What every process in the image starts with; the profile's own variables win."""
    return {"PATH": PATH, "VIRTUAL_ENV": f"/{PREFIX}", "LANG": "C.UTF-8", **profile_variables}


def ensure_image(
    store: Store, definition: SandboxDefinition, base: Base, layers: Sequence[Layer], profile: Profile,
    manifest: SandboxManifest,
) -> Image:  # fmt: skip
    """The image of this definition: reused if it is whole, made (and checked) if not."""
    image = Image(
        definition,
        base.name,
        base.architecture,
        tuple((layer.kind, layer.oid, layer.what) for layer in layers),
        environment(dict(profile.variables)),
    )
    directory = image_directory(store.home, image.sbx_id)
    if _reusable(store, directory, image):
        console.detail(f"image {image.sbx_id[:12]}: in the store")
        return image
    with disk_errors(store.home.root), store.lock(f"image-{image.sbx_id}", f"the image {image.sbx_id[:12]}"):
        if not _reusable(store, directory, image):
            console.detail(f"image {image.sbx_id[:12]}: not there, making it")
            check_links(store, base, layers, manifest)
            _write(directory, image)
    return image


def _reusable(store: Store, directory: Path, image: Image) -> bool:
    """Whether the manifest is there, of this format, of these layers, and the layers are all in the store."""
    try:
        raw: dict[str, Any] = json.loads((directory / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    if raw.get("sbx_version") != SBX_VERSION:
        problem = f"it is version {raw.get('sbx_version')}, this px makes version {SBX_VERSION}"
        raise PxError("PX904", image=directory.name, problem=problem, directory=directory)
    return raw.get("objects") == list(image.refs) and all(store.has(kind, oid) for kind, oid, _ in image.layers)


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
            "layers": [{"kind": kind, "oid": oid, "what": what} for kind, oid, what in image.layers],
            "objects": list(image.refs),
            "env": image.variables,
        },
    )


def read_image(home: Home, sbx_id: str) -> Image | None:
    """An image by its id, if it was built on this machine and its format is ours."""
    try:
        raw: dict[str, Any] = json.loads((image_directory(home, sbx_id) / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    if raw["sbx_version"] != SBX_VERSION:
        problem = f"it is version {raw['sbx_version']}, this px makes version {SBX_VERSION}"
        raise PxError("PX904", image=sbx_id, problem=problem, directory=image_directory(home, sbx_id))
    definition = SandboxDefinition(raw["base_os_oid"], frozenset(raw["capabilities"]), raw["profile_oid"])
    layers = tuple((row["kind"], row["oid"], row["what"]) for row in raw["layers"])
    return Image(definition, raw["base"], raw["architecture"], layers, raw["env"])


def set_digest(home: Home, sbx_id: str, digest: str) -> None:
    """Note the OCI digest of an image that was encoded; nothing else of its manifest ever changes."""
    path = image_directory(home, sbx_id) / MANIFEST
    raw: dict[str, Any] = json.loads(path.read_bytes())
    if raw["image_digest"] != digest:
        write_json(path, raw | {"image_digest": digest})


def check_links(store: Store, base: Base, layers: Sequence[Layer], manifest: SandboxManifest) -> None:
    """Refuse an image in which something that must load cannot: PX902, before anybody runs it."""
    seen = [merged.Layer(layer.tree, tree_spec(store.payload(layer.kind, layer.oid)), layer.oid) for layer in layers]
    problems = linkcheck.check_layers(seen, base.name, store.home)
    for problem in problems:
        if not problem.fatal:
            console.detail(f"link check: {problem}")
    error = linkcheck.missing_error(problems, base.name, manifest.disabled)
    if error is not None:
        raise error
    console.detail(f"link check: {len(seen)} layers, nothing missing")


@dataclass(frozen=True)
class PreparedSandbox:
    """A project's sandbox, ready to be run: what Metaflow's local backend and ``px run --sandbox`` start from."""

    sbx_id: str
    base_os_oid: str
    profile_oid: str
    layers: tuple[Path, ...]
    env: dict[str, str]
    python: str = f"/{PREFIX}/bin/python"


def prepare(home: Home, directory: Path, *, offline: bool = False, frozen_by: str | None = None) -> PreparedSandbox:
    """The sandbox of the project around ``directory``, with the same ``sbx_id`` that ``px run --sandbox`` has."""
    from px.sandbox.sync import ensure_sandbox

    built = ensure_sandbox(home, directory, offline=offline, frozen_by=frozen_by)
    return PreparedSandbox(
        sbx_id=os.path.basename(built.env),
        base_os_oid=built.details["base_os_oid"],
        profile_oid=built.profile,
        layers=tuple(Path(p) for p in built.layers),
        env=built.variables,
    )
