"""A CPython of its own as a layer of the image, at ``/opt/px/python``: a build of python-build-standalone.

uv fetches and verifies the archive; px unpacks it itself, because what uv changes in a tree that it installs
depends on its version and on where it puts the tree.  So the tree follows from the archive alone, and its oid
in the profile binds every byte of it.  Nothing of this machine's own interpreters ever gets into an image.
"""

from __future__ import annotations

import posixpath
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from px import bounds
from px.debian.bytecode import Compiler, compile_sources, is_test
from px.env.runtime import Runtime
from px.errors import PxError
from px.platforms import host_architecture, machine_of
from px.sandbox.layers import pythons
from px.sandbox.layers.base import compiler_of
from px.sandbox.layers.layer import Layer
from px.sandbox.layers.sysconfigdata import BuildPrefix
from px.store.canonical import is_text, oid_of
from px.store.tree import UnsafePathError, check_plain_link
from px.tarballs import members, open_tar, unpacked_zstd
from px.warm.spec import PYTHON

if TYPE_CHECKING:
    import tarfile
    from pathlib import Path

    from px.project.context import Context
    from px.sandbox.layers.base import Base
    from px.sandbox.layers.pythons import Choice
    from px.store.objects import Draft, Payload
    from px.store.tree import TreeWriter

PREFIX = PYTHON.lstrip("/")
RECIPE = 1
"""Raised when this module or ``sysconfigdata`` changes what an archive becomes."""
BYTECODE_RECIPE = 2
"""Raised when what is compiled of it changes."""


@dataclass(frozen=True)
class LayeredPython:
    """A build of CPython that is in the store as a layer."""

    runtime: Runtime
    layer: Layer


def ensure_python(context: Context, choice: Choice, libc: str) -> LayeredPython:
    """The chosen build as a runtime with its layer, fetched if the store does not have it."""
    major, minor = choice.version.split(".")[:2]
    runtime = Runtime(choice.version, f"cp{major}{minor}", "Linux", machine_of(choice.architecture), libc)
    return LayeredPython(runtime, _ensure_layer(context, choice))


def _ensure_layer(context: Context, choice: Choice) -> Layer:
    store = context.store

    def make(draft: Draft) -> Payload:
        with store.draft() as scratch:
            archive = pythons.fetch(context, choice, scratch.path)
            draft.notes["archive"] = archive.name
            tree = _tree(archive, draft.tree(), scratch.path, choice).finish()
        return {"what": "runtime", "version": choice.version, "architecture": choice.architecture, "tree": tree}

    key = oid_of("runtime-layer-inputs", {"recipe": RECIPE, "archive": list(choice.identity)})
    return Layer.of(store, store.ensure("layer", key, make, label=f"CPython {choice.version}"), "runtime")


def _tree(archive: Path, tree: TreeWriter, scratch: Path, choice: Choice) -> TreeWriter:
    import gzip
    import tarfile

    try:
        with _decompressed(archive, scratch / "archive.tar").open("rb") as file, open_tar(file, "r:") as tar:
            _unpack(tar, tree)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, UnsafePathError, KeyError, ValueError) as e:
        raise PxError("PX903", problem=f"the archive {archive.name} of CPython {choice.version} is damaged: {e}") from e
    program = f"{PREFIX}/bin/python{'.'.join(choice.version.split('.')[:2])}"
    if program not in tree:
        raise PxError("PX903", problem=f"the archive {archive.name} has no {posixpath.basename(program)} in it")
    return tree


def _decompressed(archive: Path, to: Path) -> Path:
    """The plain tar file: members are then read in any order without decompressing anything twice."""
    left = bounds.unpacked(archive.stat().st_size)
    with _plain(archive) as source, to.open("wb") as target:
        while piece := source.read(1 << 20):
            left -= len(piece)
            if left < 0:
                raise UnsafePathError("it becomes too large when it is unpacked")
            target.write(piece)
    return to


def _plain(archive: Path) -> BinaryIO:
    if archive.name.endswith(".zst"):
        return unpacked_zstd(archive.open("rb"))
    import gzip

    return cast("BinaryIO", gzip.open(archive))


def _unpack(tar: tarfile.TarFile, tree: TreeWriter) -> None:
    found = {posixpath.normpath(m.name): m for m in members(tar)}
    # The full archives have the installation in a directory of its own, beside how it was built.
    root = "python/install/" if "python/PYTHON.json" in found else "python/"
    wanted = {name.removeprefix(root): m for name, m in found.items() if name.startswith(root)}
    kept = {name: m for name, m in wanted.items() if _is_kept(name)}
    prefix = BuildPrefix.of({name: _read(tar, m) for name, m in kept.items() if BuildPrefix.is_told_by(name)})
    # Directories come into being with what they hold; hard links come after the files that they are links to.
    for name, member in sorted(kept.items(), key=lambda item: (item[1].islnk(), item[0])):
        path = f"{PREFIX}/{name}"
        if not is_text(name) or not is_text(member.linkname):
            raise UnsafePathError(f"{name!r}: a name that is not UTF-8")
        if member.issym():
            check_plain_link(name, member.linkname)
            tree.symlink(path, member.linkname)
        elif member.islnk():
            tree.hardlink(path, f"{PREFIX}/{posixpath.normpath(member.linkname).removeprefix(root)}")
        elif member.isfile():
            content = prefix.moved(name, _read(tar, member), PYTHON)
            tree.file(path, content, 0o755 if member.mode & 0o111 else 0o644)
        elif not member.isdir():
            raise UnsafePathError(f"{member.name} is neither a file nor a directory nor a link")


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


def _is_kept(name: str) -> bool:
    """What a program can need: no byte code of the builder's, no pip, no test suite, nothing to link statically."""
    parts = name.split("/")
    library = parts[0] == "lib" and len(parts) > 2 and parts[1].startswith("python")
    return not (
        "__pycache__" in parts
        or name.endswith((".pyc", ".a"))
        or (library and parts[2] in ("site-packages", "test", "EXTERNALLY-MANAGED"))
        or (parts[0] == "bin" and parts[-1].startswith("pip"))
    )


@dataclass(frozen=True)
class LayeredCompiler(Compiler):
    """A Python that is not the base's own, run with the base's loader and libraries."""

    program: Path

    def command(self) -> list[str]:
        own = str(self.tree / "usr/bin" / f"python{self.version}")
        return [str(self.program) if part == own else part for part in super().command()]


def layered_compiler(context: Context, base: Base, python: LayeredPython) -> Compiler:
    """What compiles modules for a Python from a layer: the same build, in the libraries of the same base."""
    native = compiler_of(context.store, base)
    layer = python.layer if base.architecture == native.architecture else _native_layer(context, base, python)
    program = layer.tree / PREFIX / "bin" / python.runtime.python
    return LayeredCompiler(native.tree, native.architecture, python.runtime.python.removeprefix("python"), program)


def _native_layer(context: Context, base: Base, python: LayeredPython) -> Layer:
    """The same Python for this machine's architecture."""
    version, architecture = python.runtime.version, host_architecture()
    try:
        return _ensure_layer(context, pythons.choose(context, architecture, lambda v: v == version, version))
    except pythons.UnavailableError as e:
        problem = f"CPython {version}, which compiles its modules, cannot be had for {architecture}"
        raise PxError("PX900", base=base.name, problem=problem, why=[str(e)]) from e


def ensure_bytecode(context: Context, base: Base, python: LayeredPython) -> Layer:
    """The compiled standard library of a Python from a layer."""
    store, layer = context.store, python.layer

    def make(draft: Draft) -> Payload:
        files = [str(e[1]) for e in layer.entries(store) if e[0] == "f" and str(e[1]).endswith(".py")]
        modules = [
            (path, layer.tree / path) for path in files if path.startswith(f"{PREFIX}/lib/") and not is_test(path)
        ]
        writer = draft.tree()
        compiler = layered_compiler(context, base, python)
        for path, content in sorted(compile_sources(compiler, modules, draft.path)):
            writer.file(path, content)
        return {"what": "runtime bytecode", "runtime": layer.oid, "tree": writer.finish()}

    key = oid_of("runtime-bytecode-inputs", {"recipe": BYTECODE_RECIPE, "runtime": layer.oid})
    oid = store.ensure("layer", key, make, label=f"the bytecode of CPython {python.runtime.version}")
    return Layer.of(store, oid, "runtime bytecode")
