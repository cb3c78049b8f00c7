"""The image of a local step: which layers, which python, and Metaflow itself in front of it.

Decision, in order: ``image=`` names a base or the directory of a px project; the step's own ``@pypi`` or
``@conda`` environment, mounted from the host, stands on the bare base; else the px project around the flow, with
the same image that ``px run --sandbox`` has there; else the bare base.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.backend import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.home import Home

DEFAULT_BASE = "debian-12"
LAYOUT = 3
"""Of the tree that holds Metaflow; another number makes new trees."""


@dataclass(frozen=True)
class LocalImage:
    """Unpacked layers and how to enter them."""

    layers: tuple[Path, ...]
    env: Mapping[str, str]
    python: str
    image_id: str
    """The ``sbx_id`` of a project's image, or the ``base_os_oid`` of a bare base."""
    project: Path | None = None

    @property
    def is_bare(self) -> bool:
        return self.project is None


def check(image: str | None) -> None:
    """Refuse what a local step cannot stand on, without making anything."""
    from px.sandbox.layers.base import known_bases

    if image is None or image in known_bases() or _project_directory(image) is not None:
        return
    raise Unusable(
        f"image={image!r} is neither a px base ({', '.join(known_bases())}) nor the directory of a px project.",
        fix=[f"Take a base: image='{DEFAULT_BASE}'", "Or name a project's directory: image='./environment'"],
    )


def resolve(home: Home, image: str | None, flow_directory: Path, *, own_packages: bool) -> LocalImage:
    """The image of a step, built if need be."""
    if image is not None:
        directory = _project_directory(image)
        return _project_image(home, directory) if directory is not None else _bare(home, image)
    if not own_packages:
        project = _project_around(flow_directory)
        if project is not None:
            return _project_image(home, project)
    return _bare(home, DEFAULT_BASE)


def _project_directory(image: str) -> Path | None:
    path = Path(image).expanduser()
    return path.absolute() if (path / "pyproject.toml").is_file() else None


def _project_around(directory: Path) -> Path | None:
    """The px project that the flow is part of: one that is locked, or says that it has a sandbox."""
    from px.project.discovery import try_discover

    found = try_discover(directory)
    if found is None:
        return None
    configured = b"[tool.px" in (found.root / "pyproject.toml").read_bytes()
    return found.root if configured or found.lock.is_file() else None


def _project_image(home: Home, directory: Path) -> LocalImage:
    from px.project.context import Context
    from px.workflow.door import ensure_sandbox

    made = ensure_sandbox(Context.from_environment(directory)).built
    return LocalImage(tuple(map(Path, made.layers)), made.variables, made.interpreter, made.sbx_id, directory)


def _bare(home: Home, base_name: str) -> LocalImage:
    from px.store.objects import Store
    from px.workflow.sandbox import bare_sandbox

    made = bare_sandbox(Store(home), base_name)
    return LocalImage(tuple(map(Path, made.layers)), made.variables, made.interpreter, made.sbx_id)


def metaflow_tree(home: Home, image: LocalImage) -> Path:
    """A directory with the launcher's Metaflow and extensions, compiled by the image's python; kept for later runs.

    A task must run the same Metaflow as its launcher, as it does everywhere else.  What Metaflow requires and the
    image lacks comes along; what the image has, from a project's own lock, is left alone.
    """
    import hashlib

    files = sorted(_metaflow_files() + _requirement_files(image))
    digest = hashlib.sha256(f"{LAYOUT} {image.image_id} {image.python}\n".encode())
    for name, source in files:
        status = source.stat()
        digest.update(f"{name}\0{source}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    tree = home.cache("metaflow") / digest.hexdigest()[:32]
    if not tree.is_dir():
        _make_tree(home, image, files, tree)
    return tree


def _metaflow_files() -> list[tuple[str, Path]]:
    import metaflow
    from metaflow.extension_support import package_mfext_all

    root = Path(metaflow.__file__).parent
    found = [
        (f"metaflow/{path.relative_to(root)}", path)
        for path in root.rglob("*")
        if path.suffix not in (".pyc", ".pyo")
        and path.is_file()
        and "tutorials" not in path.relative_to(root).parts[:1]
    ]
    # The code package makes the namespace package a plain one; here it is found by PYTHONPATH, and must stay one.
    plain = "metaflow_extensions/__init__.py"
    found += [(name, Path(path)) for path, name in package_mfext_all() if name != plain and Path(path).is_file()]
    return found


def _requirement_files(image: LocalImage) -> list[tuple[str, Path]]:
    """The files of what Metaflow requires, and of what that requires, as far as the image has not got it."""
    from importlib import metadata

    from packaging.requirements import Requirement

    found, seen, waiting = [], set(), ["boto3", "requests"]
    while waiting:
        name = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if distribution.name in seen:
            continue
        seen.add(distribution.name)
        wanted = [f for f in distribution.files or [] if ".." not in f.parts and f.suffix not in (".pyc", ".so")]
        if not any(_has(image, f.parts[0]) for f in wanted if f.suffix == ".py"):
            found += [(str(file), Path(str(distribution.locate_file(file)))) for file in wanted]
        requirements = [Requirement(text) for text in distribution.requires or []]
        waiting += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def _has(image: LocalImage, name: str) -> bool:
    """Whether the image has a module or package of this name where its python looks for installed ones."""
    places = ("opt/px/env/lib/python3*/site-packages", "usr/lib/python3/dist-packages")
    return any(next(layer.glob(f"{place}/{name}"), None) for layer in image.layers for place in places)


def _make_tree(home: Home, image: LocalImage, files: list[tuple[str, Path]], tree: Path) -> None:
    """Copy and compile in a directory of our own, then rename: another run may be doing the same."""
    import shutil
    import tempfile

    from px.engines.bubblewrap import Bubblewrap
    from px.warm.spec import Mount, RunSpec

    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="new-") as draft:
        for name, source in files:
            target = Path(draft, "tree", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        # Metaflow, and many a step, start `python`; Debian calls it python3.
        Path(draft, "tree", "bin").mkdir()
        Path(draft, "tree", "bin", "python").symlink_to(image.python)
        inside = "/opt/metaflow"
        # Hash-based and unchecked: nobody writes there, and a task need not look at the sources.
        argv = (image.python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", inside)
        spec = RunSpec(
            layers=image.layers,
            argv=argv,
            env=image.env,
            cwd="/",
            mounts=(Mount(Path(draft, "tree"), inside),),
            network=False,
        )
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            # Metaflow carries templates that are no valid Python; those stay as they are.
            Bubblewrap(home).run(spec, stdin=nothing, stdout=nothing, stderr=nothing)
        finally:
            os.close(nothing)
        try:
            Path(draft, "tree").rename(tree)
        except OSError:
            if not tree.is_dir():
                raise
