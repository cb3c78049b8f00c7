"""A directory with Metaflow in it, which every local task gets as a read-only mount.

A task must run the Metaflow of its run, as it does everywhere else.  So the tree holds the run's Metaflow and its
extensions, and what Metaflow requires and the sandbox lacks.  Packages that the sandbox has are left alone.
The sandbox's own python compiles the tree once; later runs find it in px's cache.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from px.home import Home
    from px.warm.record import BuiltSandbox

    Files = list[tuple[str, Path]]
    """Name in the tree, and the file that it is copied from."""

INSIDE = "/opt/metaflow"
"""Where a task sees the tree."""
# The version of the tree's layout. A change of the number makes new trees.
LAYOUT = 4
# Where a project's packages are, and those of Debian.
_SITE_PACKAGES = ("opt/px/env/lib/python3*/site-packages", "usr/lib/python3/dist-packages")


def metaflow_tree(home: Home, built: BuiltSandbox) -> Path:
    """The tree for this sandbox, made if need be."""
    import hashlib

    from metaflow.metaflow_version import get_version

    files = sorted(_metaflow_files() + _requirement_files(built))
    # By size and time, not by content: this happens in every run, and there are a thousand files.
    digest = hashlib.sha256(f"{LAYOUT} {built.sbx_id} {built.interpreter} {get_version()}\n".encode())
    for name, source in files:
        status = source.stat()
        digest.update(f"{name}\0{source}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    tree = home.cache("metaflow") / digest.hexdigest()[:32]
    if not tree.is_dir():
        _make(home, built, files, tree)
    return tree


def _metaflow_files() -> Files:
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
    # A code package turns the namespace package into a plain one. On PYTHONPATH it must stay a namespace package.
    plain = "metaflow_extensions/__init__.py"
    found += [(name, Path(path)) for path, name in package_mfext_all() if name != plain and Path(path).is_file()]
    return found


def _requirement_files(built: BuiltSandbox) -> Files:
    """The files of all distributions that Metaflow requires and the sandbox lacks."""
    from importlib import metadata

    from packaging.requirements import Requirement

    # Metaflow requires these two. The loop finds what they require.
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
        # Compiled files may be for another Python than the sandbox's. These packages work without them.
        wanted = [f for f in distribution.files or [] if ".." not in f.parts and f.suffix not in (".pyc", ".so")]
        if not any(_has(built, f.parts[0]) for f in wanted if f.suffix == ".py"):
            found += [(str(file), Path(str(distribution.locate_file(file)))) for file in wanted]
        requirements = [Requirement(text) for text in distribution.requires or []]
        waiting += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def _has(built: BuiltSandbox, name: str) -> bool:
    """Whether a module or package of this name is installed in the sandbox."""
    return any(next(Path(layer).glob(f"{place}/{name}"), None) for layer in built.layers for place in _SITE_PACKAGES)


def _make(home: Home, built: BuiltSandbox, files: Files, tree: Path) -> None:
    """Copy and compile in a temporary directory, then rename it.  Another run may be doing the same."""
    import json
    import shutil
    import tempfile

    from metaflow.metaflow_version import get_version

    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="new-") as temporary:
        draft = Path(temporary, "tree")
        for name, source in files:
            target = draft / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        # Metaflow asks this file for its version first. Of a git checkout, the copy would not know it.
        (draft / "INFO").write_text(json.dumps({"metaflow_version": get_version()}), encoding="utf-8")
        # Metaflow, and many steps, start `python`. Debian has only `python3`.
        (draft / "bin").mkdir(exist_ok=True)
        (draft / "bin" / "python").symlink_to(built.interpreter)
        _compile(home, built, draft)
        try:
            draft.rename(tree)
        except OSError:
            if not tree.is_dir():  # another run was faster, and its tree is as good
                raise


def _compile(home: Home, built: BuiltSandbox, draft: Path) -> None:
    from px.engines.bubblewrap import Bubblewrap
    from px.warm.spec import Mount, RunSpec

    # Nobody changes these files, so a task need not compare them with their sources.
    words = ("-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", INSIDE)
    spec = RunSpec(
        layers=built.layers,
        argv=(built.interpreter, *words),
        env=built.variables,
        cwd="/",
        mounts=(Mount(draft, INSIDE),),
        network=False,
    )
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        # The exit code says nothing: Metaflow has templates that look like modules and cannot be compiled.
        Bubblewrap(home).run(spec, stdin=nothing, stdout=nothing, stderr=nothing)
    finally:
        os.close(nothing)
