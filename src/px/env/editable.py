"""The project itself in its env: an editable install, made by the project's own build backend through uv."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.errors import PxError
from px.project import uv
from px.project.manifest import FILE, OLD_MANIFESTS, Manifest

if TYPE_CHECKING:
    from px.env.runtime import HostPython
    from px.project.context import Context

# What uv leaves beside the installation, and what the env writes itself.
_NOT_KEPT = {"bin", ".lock", "uv_cache.json", "uv_build.json", "REQUESTED"}


def editable_files(context: Context, name: str, path: Path, interpreter: HostPython) -> dict[str, bytes]:
    """The files that an editable install of ``path`` adds to site-packages: a .pth or a finder, and metadata.

    They hold the project's absolute path, so they are kept per project in the cache, never in the store.
    """
    key = _key(path, interpreter)
    kept = context.home.cache("editables") / key
    if not kept.is_dir():
        _install(context, name, path, interpreter, kept)
    return {
        os.fspath(file.relative_to(kept)): file.read_bytes()
        for file in sorted(kept.rglob("*"))
        if file.is_file() and file.name not in _NOT_KEPT
    }


def _key(path: Path, interpreter: HostPython) -> str:
    digest = hashlib.sha256(os.fsencode(path) + b"\0" + interpreter.runtime.abi.encode())
    manifest = path / FILE
    known = Manifest.read(manifest).build_files if manifest.is_file() else tuple(path / n for n in OLD_MANIFESTS)
    for file in (manifest, *known):
        name = os.path.relpath(file, path)
        digest.update(os.fsencode(name) + b"\0" + (file.read_bytes() if file.is_file() else b""))
    # A directory that appears or goes can change what the backend finds (a package added to src).
    for directory in (path, path / "src"):
        if directory.is_dir():
            names = sorted(e.name for e in os.scandir(directory) if e.is_dir() and not e.name.startswith("."))
            digest.update("\0".join(names).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:40]


def _install(context: Context, name: str, path: Path, interpreter: HostPython, kept: Path) -> None:
    console.detail(f"{name}: making the editable install of {path}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=kept.parent))
    try:
        done = uv.Uv(path, context.offline).run(
            "pip", "install", "--quiet", "--no-deps", "--target", scratch / "site", "--python", interpreter.executable,
            "--project", context.root, "--editable", path,
        )  # fmt: skip
        if not done.ok:
            remedy = "Check [build-system] and the version in pyproject.toml."
            raise PxError("PX208", name=name, path=path, reason=uv.explain(done.stderr), remedy=remedy)
        for unwanted in (scratch / "site" / "bin", scratch / "site" / ".lock"):
            shutil.rmtree(unwanted, ignore_errors=True)
            if unwanted.is_file():
                unwanted.unlink()
        try:
            (scratch / "site").rename(kept)
        except OSError:
            if not kept.is_dir():  # another px was faster: its result is as good
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
