"""Packing: the sandbox of a project and its code as an OCI image, the same bytes on every machine."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from px.errors import PxError
from px.oci.applayer import scan
from px.oci.blobs import Blobs
from px.oci.compress import GZIP
from px.oci.config import ImageSpec, LayerUse, build_image, timestamp
from px.oci.documents import OCI, Platform
from px.oci.tar import Part
from px.oci.worktree import commit_of, governing_repository
from px.sandbox import image
from px.sandbox.encode import encode, layer_uses
from px.sandbox.projectlayer import ensure_project_layer
from px.sandbox.runtime import MACHINES
from px.sandbox.sync import derive, layers_of
from px.store.objects import tree_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from px.oci.applayer import AppTree
    from px.oci.config import BuiltImage
    from px.oci.worktree import Commit
    from px.project.discovery import Project
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.sandbox.bases import Layer
    from px.sandbox.sync import Derived
    from px.store.canonical import Value
    from px.store.objects import Store

USER = (1000, 1000)
HOME = "home/px"
"""Belongs to the user in an image: programs keep caches and settings there."""
LABEL = "px."


@dataclass(frozen=True)
class PackOptions:
    """What the flags of ``px pack image`` say about the image itself."""

    entrypoint: tuple[str, ...] | None = None
    """None: the project's only console script, if it has exactly one."""
    cmd: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    format: str = OCI
    compression: str = GZIP
    outputs: tuple[Path, ...] = ()
    """Files that the command itself writes or reads: not part of the app, wherever they lie."""
    clean: bool = False
    """Git has just said that nothing is changed or untracked."""


@dataclass(frozen=True)
class Packed:
    """One platform's image, and what it was derived from."""

    image: BuiltImage
    derived: Derived
    make_bill: Callable[[], bytes]
    app: AppTree
    commit: Commit | None

    @cached_property
    def bill(self) -> bytes:
        """Its SBOM, CycloneDX; made when it is asked for, because it reads every package's licence."""
        return self.make_bill()


def pack(
    store: Store,
    situation: Situation,
    selection: Selection,
    options: PackOptions,
    *,
    architecture: str,
    offline: bool,
) -> Packed:
    """Build the image of one architecture from the project as it is now."""
    project = situation.project
    derived = derive(store, situation, selection, offline=offline, architecture=architecture)
    layers = layers_of(store, derived, offline=offline)
    derived.profile.save(store)
    made = image.ensure_image(store, derived.definition, derived.base, layers, derived.profile, derived.manifest)
    own = ensure_project_layer(store, project, derived.profile.editables, derived.builder)
    blobs = Blobs(store.home)
    app = scan(project.root, exclude=sorted(derived.manifest.exclude), outputs=options.outputs, clean=options.clean)
    uses = [
        *layer_uses(store, made.layers, made.base, compression=options.compression),
        _app_layer(store, blobs, app, own, options),
    ]
    commit = commit_here(project.root)
    spec = _spec(project, selection, options, derived, made, commit, app)
    built = build_image(blobs, spec, uses, format=options.format)
    if options.compression == GZIP:
        encode(store, made.sbx_id)  # the sandbox's own digest; its layers are packed already

    def make_bill() -> bytes:
        from px.oci.sbom import Subject
        from px.sandbox.bill import bill_of

        subject = Subject(project.here.name or "app", project.here.version or "", built.digest, spec.created)
        return bill_of(store, subject, derived, layers)

    return Packed(built, derived, make_bill, app, commit)


def commit_here(root: Path) -> Commit | None:
    """The commit that the project is at, if it is in a repository."""
    return commit_of(root) if governing_repository(root) is not None else None


def _app_layer(store: Store, blobs: Blobs, app: AppTree, own: Layer | None, options: PackOptions) -> LayerUse:
    """The working tree at ``/app``, the project's own metadata and scripts, and the user's home, in one layer."""
    identity: list[Value] = ["app", app.oid, own.oid if own else None, HOME]

    def parts() -> list[Part]:
        found = [Part(app.root, app.entries, "app", USER), Part(app.root, (), HOME, USER)]
        if own is not None:
            found.append(Part(own.tree, tree_spec(store.payload(own.kind, own.oid))))
        return found

    return LayerUse(blobs.layer(identity, parts, compression=options.compression), "px: app")


def _spec(
    project: Project,
    selection: Selection,
    options: PackOptions,
    derived: Derived,
    made: image.Image,
    commit: Commit | None,
    app: AppTree,
) -> ImageSpec:
    entrypoint = _only_script(project) if options.entrypoint is None else options.entrypoint
    cmd = options.cmd or (() if entrypoint else ("python",))
    created = commit.time if commit else 0
    labels = {
        f"{LABEL}sbx_id": made.sbx_id,
        f"{LABEL}base": derived.base.name,
        f"{LABEL}base_os_oid": derived.base.oid,
        f"{LABEL}profile_oid": derived.profile.oid,
        f"{LABEL}capabilities": ",".join(sorted(derived.capabilities)),
        f"{LABEL}selection": json.dumps(selection.as_json(), sort_keys=True, separators=(",", ":")),
        f"{LABEL}app_oid": app.oid,
        **options.labels,
    }
    return ImageSpec(
        platform=Platform("linux", derived.base.architecture),
        created=created,
        env={**made.variables, "HOME": f"/{HOME}"},
        entrypoint=entrypoint,
        cmd=cmd,
        ports=options.ports,
        labels=labels,
        annotations=_annotations(project, derived, commit, created),
    )


def _only_script(project: Project) -> tuple[str, ...]:
    scripts = tuple(project.here.scripts) if project.here.is_package else ()
    return scripts if len(scripts) == 1 else ()


def _annotations(project: Project, derived: Derived, commit: Commit | None, created: int) -> dict[str, str]:
    prefix = "org.opencontainers.image."
    found = {
        "title": project.here.name or "",  # never the directory's name: clones have other ones
        "version": project.here.version or "",
        "revision": commit.revision if commit else "",
        "source": _source(project, commit),
        "base.name": f"px/base:{derived.base.name}-{derived.base.lock.variant}",
        "created": timestamp(created),
    }
    return {prefix + name: value for name, value in found.items() if value}


def _source(project: Project, commit: Commit | None) -> str:
    """Where the code is: as the manifest says, which is the same in every clone, else where this one came from."""
    urls = project.here.project.get("urls", {})
    named = {re.sub(r"[^a-z]", "", label.lower()): str(url) for label, url in urls.items()}
    written = next((named[label] for label in ("source", "sourcecode", "repository", "github") if label in named), "")
    return written or (public_address(commit.remote) if commit else "")


def public_address(remote: str) -> str:
    """A remote as everybody may reach it: ssh and https are one place; a directory of this machine is none."""
    ssh = re.fullmatch(r"(?:ssh://)?(?:[^@/]+@)?([^:/@]+)(?::(?!\d)|(?::\d+)?/)(.+)", remote)
    if "://" not in remote and ":" not in remote.partition("/")[0]:
        return ""
    if remote.startswith(("http://", "https://")):
        return remote.removesuffix("/").removesuffix(".git")
    if ssh is not None and (remote.startswith("ssh://") or "://" not in remote):
        return f"https://{ssh[1]}/{ssh[2].strip('/').removesuffix('.git')}"
    return ""


def selection_of(labels: dict[str, str]) -> dict[str, Any]:
    """The selection that an image says it was made with."""
    try:
        found: dict[str, Any] = json.loads(labels[f"{LABEL}selection"])
    except (KeyError, ValueError) as e:
        raise PxError("PX923", source="the image", problem="it does not say what px made it from") from e
    return found


def architecture_of(platform: Platform) -> str:
    """Debian's and OCI's words for the architectures that px has are the same."""
    if platform.os != "linux" or platform.architecture not in MACHINES:
        known = ", ".join(f"linux/{name}" for name in MACHINES)
        raise PxError("PX900", base="debian-12", problem=f"px has no base for {platform}; it has {known}")
    return platform.architecture
