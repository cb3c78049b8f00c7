"""Packing: the sandbox of a project and its code as an OCI image, the same bytes on every machine.

What only a push or a bill of materials needs is imported there: packing again, with nothing changed, should be quick.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from px import console
from px.errors import PxError
from px.oci import catalogue
from px.oci.blobs import Blobs
from px.oci.compress import GZIP
from px.oci.config import ImageSpec, LayerUse, build_image
from px.oci.documents import OCI, Platform
from px.oci.failures import building
from px.oci.layout import open_output, release, stream_archive, write_archive, write_layout
from px.oci.registry.reference import default_reference
from px.oci.tar import Part
from px.project.git.history import commit_of
from px.project.git.tree import governing_repository
from px.project.worktree.files import dirty
from px.project.worktree.tree import AppTree, scan
from px.sandbox.encode import encode, layer_uses
from px.sandbox.image import check_links
from px.sandbox.labels import image_annotations, image_labels, task_labels
from px.sandbox.layers.apt import ensure_apt_layers
from px.sandbox.layers.extra import ensure_extra_layer
from px.sandbox.layers.project import siblings
from px.sandbox.manifest import governing_manifest
from px.store.canonical import oid_of
from px.warm.places import program
from px.warm.spec import APP, HOME
from px.workflow.sandbox import take_steps
from px.workflow.tasks.variables import task_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from px.env.packages import Package
    from px.oci.config import BuiltImage
    from px.oci.layout import Release
    from px.oci.registry.push import Pushed
    from px.oci.registry.reference import Reference
    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.git.history import Commit
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.sandbox.layers.layer import Layer
    from px.store.canonical import Value
    from px.store.objects import Store
    from px.workflow.sandbox import Steps
    from px.workflow.tasks.packages import Tasks

USER = (1000, 1000)

# A login in an address: https://user:password@host
_PASSWORD = re.compile(r"https?://[^\s/:@'\"]+:[^\s/@'\"]+@")


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
    more: frozenset[str] = frozenset()
    """Capabilities for this image only (``--auto-add``)."""
    tasks: Tasks | None = None
    """The tasks of Metaflow that the image is for: they find what they need in it."""
    code: bool = True
    """Whether the working tree is in it; without, the image is the same for every commit with this lock."""


@dataclass(frozen=True)
class PackedImage:
    """One platform's image, and what it was made from."""

    image: BuiltImage
    steps: Steps
    project: Project
    commit: Commit | None
    extra: tuple[Package, ...] = ()
    """What it has beside the packages of the lock."""
    beside: tuple[Layer, ...] = ()
    """The layers that it has on top of the sandbox's own."""

    @cached_property
    def bill(self) -> bytes:
        """Its SBOM, CycloneDX; made when it is asked for, because it reads every package's licence."""
        from px.sandbox.report.bill import bill_of
        from px.sandbox.report.cyclonedx import Subject

        here, spec = self.project.here, self.image.spec
        subject = Subject(here.name or "app", here.version or "", self.image.digest, spec.created)
        return bill_of(subject, self.steps.derived, (*self.steps.image.layers, *self.beside), self.extra)


@dataclass(frozen=True)
class PackedRelease:
    """The images of all platforms under their names: what ``px pack image`` makes."""

    release: Release
    images: tuple[PackedImage, ...]
    names: tuple[Reference, ...]
    selection: Selection

    def bill_paths(self, path: Path) -> list[Path]:
        """Where the bill of materials goes: with the architecture in its name, if there are several."""
        architectures = [packed.image.spec.platform.architecture for packed in self.images]
        if len(architectures) == 1:
            return [path]
        return [path.with_name(f"{path.stem}.{a}{path.suffix}") for a in architectures]


# --- making ----------------------------------------------------------------------------------------------------


def pack_all(
    situation: Situation,
    selection: Selection,
    options: PackOptions,
    architectures: Sequence[str],
    names: Sequence[Reference] = (),
) -> PackedRelease:
    """An image for each architecture, under these names; without any, under one that the project suggests."""
    _warn_of_passwords(situation.project)
    images = tuple(pack(situation, selection, options, architecture) for architecture in architectures)
    project, commit = situation.project, images[0].commit
    if not names:
        names = [default_reference(project.name, project.here.version, commit.revision if commit else None)]
    made = release(Blobs(situation.context.home), tuple(p.image for p in images), tuple(names))
    return PackedRelease(made, images, tuple(names), selection)


def _warn_of_passwords(project: Project) -> None:
    """Manifests go into the image, with the addresses of indexes that are in them."""
    for path in (*(m.path for m in project.manifests), project.root / "uv.toml"):
        if path.is_file() and _PASSWORD.search(path.read_text(encoding="utf-8", errors="replace")):
            console.warn(
                f"{path.name} has a password in an address, and everybody who has the image can read it. "
                "Take it out, and give it to uv as UV_INDEX_NAME_PASSWORD or in ~/.netrc."
            )


def pack(situation: Situation, selection: Selection, options: PackOptions, architecture: str) -> PackedImage:
    """Build the image of one architecture from the project as it is now."""
    store, project = situation.context.store, situation.project
    steps = take_steps(situation, selection, architecture=architecture, more=options.more)
    exclude = sorted(steps.derived.manifest.exclude)
    app = AppTree(project.root, ())
    if options.code:
        with console.waiting("Reading the project's files"):
            app = scan(project.root, exclude=exclude, outputs=options.outputs, clean=options.clean)
    beside = {inside: scan(path) for inside, path in siblings(project.root, steps.derived.profile).items()}
    commit = commit_here(project.root) if options.code else None
    extra, more = _for_tasks(steps, options)
    uses = [
        *layer_uses(store, [*steps.image.layers, *more], steps.image.base, options.compression),
        _app_layer(store, app, beside, steps, options),
    ]
    spec = _spec(steps, project, commit, options)
    trees: list[Value] = [app.oid]
    trees += [[inside, tree.oid] for inside, tree in beside.items()]
    oid = oid_of("apps", trees) if beside else app.oid
    own = image_labels(steps.derived, selection, oid, options.more, code=options.code)
    if options.tasks is not None:
        own |= task_labels(options.tasks.datastore, [f"{p.name}=={p.version}" for p in extra], apt=options.tasks.apt)
    spec = replace(spec, labels={**own, **options.labels})
    built = build_image(Blobs(store.home), spec, uses, format=options.format)
    if options.compression == GZIP:
        encode(store, steps.image)  # the sandbox's own digest; its layers are packed already
    return PackedImage(built, steps, project, commit, extra, more)


def _for_tasks(steps: Steps, options: PackOptions) -> tuple[tuple[Package, ...], tuple[Layer, ...]]:
    """The packages that tasks need and the lock lacks, and the layers for tasks: apt if they want it, then these."""
    if options.tasks is None:
        return (), ()
    from px.workflow.tasks.packages import task_packages, task_programs

    store, derived = steps.derived.ground.context.store, steps.derived
    if not any(p.name == "bash" for layer in steps.image.layers for p in layer.packages):
        problem = "Metaflow starts tasks with bash, which it does not have"
        fix = ['Take a base of Debian for the flow: [tool.px.sandbox] base = "debian-12"']
        raise PxError("PX900", base=steps.image.base, problem=problem, fix=fix, whole_fix=True)
    extra = task_packages(derived, options.tasks)
    apt = ensure_apt_layers(store, derived.base, steps.image.layers) if options.tasks.apt else ()
    layers = (*apt, ensure_extra_layer(derived.ground, extra, "tasks", task_programs()))
    check_links(store, [*steps.image.layers, *layers], steps.image.base, derived.manifest.disabled)
    return extra, layers


def commit_here(root: Path) -> Commit | None:
    """The commit that the project is at, if it is in a repository."""
    return commit_of(root) if governing_repository(root) is not None else None


def _app_layer(
    store: Store, app: AppTree, beside: Mapping[str, AppTree], steps: Steps, options: PackOptions
) -> LayerUse:
    """The working tree at ``/app``, those beside it, the project's own metadata and scripts, and the user's home."""
    own, home = steps.project_layer, HOME.lstrip("/")
    identity: list[Value] = ["app", app.oid, own.oid if own else None, home]
    identity += [[inside, tree.oid] for inside, tree in beside.items()]

    def parts() -> list[Part]:
        # The home belongs to the user in an image: programs keep caches and settings there.
        found = [Part(app.root, app.entries, APP.lstrip("/"), USER), Part(app.root, (), home, USER)]
        found += [Part(tree.root, tree.entries, inside.lstrip("/"), USER) for inside, tree in beside.items()]
        return [*found, Part(own.tree, own.entries(store))] if own else found

    return LayerUse(Blobs(store.home).layer(identity, parts, compression=options.compression), "px: app")


def _spec(steps: Steps, project: Project, commit: Commit | None, options: PackOptions) -> ImageSpec:
    # Metaflow says what a task runs, and some of its engines put that behind an entrypoint.
    default = () if options.tasks else _only_script(project)
    entrypoint = default if options.entrypoint is None else options.entrypoint
    env = {**steps.image.variables, "HOME": HOME}
    return ImageSpec(
        platform=Platform("linux", steps.derived.base.architecture),
        created=commit.time if commit else 0,
        env=env | task_variables(env["PATH"], steps.image.sbx_id) if options.tasks else env,
        # A task makes a directory of its own, called metaflow, and a project may have one of that name.
        workdir=HOME if options.tasks else APP,
        entrypoint=entrypoint,
        cmd=options.cmd or (() if entrypoint else ("python",)),
        ports=options.ports,
        annotations=image_annotations(project, steps.derived, commit),
    )


def _only_script(project: Project) -> tuple[str, ...]:
    scripts = tuple(project.here.scripts) if project.here.is_package else ()
    return scripts if len(scripts) == 1 else ()


def production(project: Project, synced: Selection, asked: Selection | None) -> Selection:
    """What an image has: what its flags ask for, or else what the sandbox was synced with, less what is for developers.

    Flags may ask for a development group by its name.
    """
    # A path is one machine's; in the image it stands for no version.
    version = synced.python if synced.python and re.fullmatch(r"[0-9.]+", synced.python) else None
    if asked is not None:
        return replace(asked, default_groups=False, python=version)
    development = set(project.manifest.default_groups) | {"dev"}
    left_out = development & set(project.manifest.groups) if synced.all_groups else set()
    return replace(
        synced,
        groups=tuple(g for g in synced.groups if g not in development),
        no_groups=tuple(sorted({*synced.no_groups, *left_out})),
        default_groups=False,
        python=version,
    )


def described(selection: Selection) -> str:
    """The groups and extras of an image, in words."""
    found = ["all extras"] if selection.all_extras else [f"extra {name}" for name in selection.extras]
    found += ["all groups"] if selection.all_groups else [f"group {name}" for name in selection.groups]
    found += [f"not group {name}" for name in selection.no_groups if selection.all_groups]
    return ", ".join(found) or "no extras, no groups"


def check_clean(project: Project, *, allow_dirty: bool, outputs: Sequence[Path] = (), warn: bool = True) -> bool:
    """An image is made from a commit: PX920 unless the user says otherwise, and then a warning.

    Says whether git found nothing that is changed or untracked.
    """
    manifest, _ = governing_manifest(project.manifest.path)
    found = dirty(project.root, exclude=sorted(manifest.exclude), outputs=outputs, hidden=warn)
    changes = None if found is None else [str(change) for change in found]
    if changes is not None:
        changes += [f"{at}: {change}" for at in project.beside for change in dirty(at, hidden=warn) or ()]
    if changes is None:
        if warn:
            console.warn("this is not a git repository: the image cannot say which commit it was made from")
        return False
    if not changes:
        return True
    shown = ", ".join(changes[:5]) + (" …" if len(changes) > 5 else "")
    if not allow_dirty:
        raise PxError("PX920", count=console.counted(len(changes), "uncommitted change"), changes=shown)
    console.warn(f"packing {console.counted(len(changes), 'uncommitted change')}: {shown}")
    return False


# --- delivering ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delivery:
    """Where a packed image shall go; anywhere or nowhere, it stays on this machine too."""

    out: str | None = None
    """An archive, or a directory where it ends with a slash or is one."""
    sbom: str | None = None
    load: bool = False
    push: bool = False
    insecure: bool = False


def deliver(context: Context, packed: PackedRelease, delivery: Delivery) -> tuple[Pushed, ...]:
    """Write, load and push as asked; what was built stays good whichever of these fails."""
    blobs = Blobs(context.home)
    catalogue.remember(context.home, packed.release)
    if delivery.sbom:
        for path, image in zip(packed.bill_paths(Path(delivery.sbom)), packed.images, strict=True):
            with building(context.home, path.parent), open_output(path) as out:
                out.write(image.bill)
    if delivery.out:
        path = Path(delivery.out)
        is_directory = delivery.out.endswith("/") or path.is_dir()
        (write_layout if is_directory else write_archive)(blobs, packed.release, path)
    if delivery.load:
        _load(blobs, packed.release)
    return _push(blobs, packed, insecure=delivery.insecure) if delivery.push else ()


def _load(blobs: Blobs, release: Release) -> None:
    """``docker load`` or ``podman load``, whichever is there."""
    client, command = next(((name, found) for name in ("docker", "podman") if (found := program(name))), ("", ""))
    if not client:
        fix = ["Install docker or podman, or write a file: px pack image --out app.tar"]
        raise PxError("PX903", problem="there is neither docker nor podman to load the image into", fix=fix)
    loading, pipe = console.waiting(f"Loading the image into {client}"), subprocess.PIPE
    with loading, subprocess.Popen([command, "load"], stdin=pipe, stdout=pipe, stderr=pipe) as it:
        try:
            if it.stdin is not None:
                stream_archive(blobs, release, cast("BinaryIO", it.stdin))
            said = it.communicate()
        except BrokenPipeError:
            said = it.communicate()
    if it.returncode != 0:
        why = [said[1].decode("utf-8", "replace").strip()]
        fix = [f"See whether it works: {client} info", "Or write a file, for any tool: px pack image --out app.tar"]
        raise PxError("PX903", problem=f"{client} did not load the image", why=why, fix=fix, whole_fix=True)


def _push(blobs: Blobs, packed: PackedRelease, *, insecure: bool) -> tuple[Pushed, ...]:
    from px.oci.registry.client import Registry
    from px.oci.registry.push import push as push_release
    from px.oci.registry.referrers import Attachment, NotTakenError, attach
    from px.sandbox.report.cyclonedx import MEDIA_TYPE

    pushed = push_release(blobs, packed.release, packed.names, insecure=insecure)
    for name in {n.repository: n for n in packed.names}.values():
        registry = Registry(name, insecure=insecure)
        try:
            for one in packed.images:
                attach(blobs, registry, one.image.manifest, Attachment(MEDIA_TYPE, one.bill))
        except NotTakenError as e:
            # The image is there and can be used: that is what the user asked for.
            console.warn(
                f"{name.host} does not take the bill of materials ({e.reason}); --sbom FILE writes it to a file"
            )
    return pushed
