"""A stand-in for python-build-standalone, which cannot be downloaded where the tests run.

An archive of the same shape (``python/bin``, ``python/lib`` …, found relative to the program, with the prefix
that it was configured with in its build variables), made from a CPython of this machine that was built from
source and needs only libraries that the bases have.  Such an interpreter gets into an image by way of this
test alone: px itself never takes one.  What it cannot show is that the real archives, which link nearly
everything statically, pass the same way.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path

from px import process
from tests.support.interpreters import interpreters
from tests.support.needs import lacks, need

MINOR = "3.12"
_PROBE = """
import json, sys, sysconfig
names = ("LIBDIR", "INSTSONAME", "Py_ENABLE_SHARED")
print(json.dumps([sys.base_prefix, "%d.%d.%d" % sys.version_info[:3], *map(sysconfig.get_config_var, names)]))
"""
# Large, and nothing that the tests import; _tkinter, _dbm and their like need libraries that the bases lack.
_LEFT_OUT = ("test", "site-packages", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "__pycache__")
_MODULES_LEFT_OUT = ("_tkinter", "_dbm", "_gdbm", "nis", "_crypt", "_test", "xx")


@dataclass(frozen=True)
class Standalone:
    """The archive and uv's list of downloads that names it, for this machine's architecture."""

    version: str
    archive: Path
    listing: Path
    prefix: str
    """Where the interpreter was configured to lie."""


def build(directory: Path) -> Standalone:
    """Make the archive from the machine's own Python 3.12."""
    need("CPython 3.12")
    answers = [json.loads(process.run([python, "-I", "-c", _PROBE]).stdout) for python in interpreters(MINOR)]
    # A system's own cannot be moved.
    usable = [answer for answer in answers if answer[0] != "/usr"]
    if not usable:
        lacks("CPython 3.12", "this one was not built from source, and cannot stand in for python-build-standalone")
    prefix, version, libdir, library, shared = usable[0]
    machine = platform.machine()
    archive = directory / f"cpython-{version}+20240101-{machine}-unknown-linux-gnu-install_only_stripped.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        _fill(_Writer(tar, prefix), Path(prefix), Path(libdir) / library if shared else None)
    listing = directory / "downloads.json"
    listing.write_text(json.dumps(_row(version, machine, archive)))
    return Standalone(version, archive, listing, prefix)


class _Writer:
    def __init__(self, tar: tarfile.TarFile, prefix: str):
        self.tar, self.prefix = tar, prefix.encode()

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        member = tarfile.TarInfo(f"python/{name}")
        member.size, member.mode, member.mtime = len(content), mode, 1_700_000_000
        self.tar.addfile(member, io.BytesIO(content))

    def link(self, name: str, target: str) -> None:
        member = tarfile.TarInfo(f"python/{name}")
        member.type, member.linkname = tarfile.SYMTYPE, target
        self.tar.addfile(member)

    def program(self, name: str, file: Path) -> None:
        """An ELF file whose search path, if it has one, is made relative in place: the new one is shorter."""
        content = file.read_bytes()
        absolute, relative = self.prefix + b"/lib\0", b"$ORIGIN/../lib\0"
        self.add(name, content.replace(absolute, relative.ljust(len(absolute), b"\0"), 1), 0o755)


def _fill(writer: _Writer, prefix: Path, library: Path | None) -> None:
    writer.program(f"bin/python{MINOR}", prefix / "bin" / f"python{MINOR}")
    writer.link("bin/python3", f"python{MINOR}")
    writer.add("bin/pip", b"#!/bin/sh\n", 0o755)
    if library is not None:
        writer.program(f"lib/{library.name}", library)
    for file in sorted((prefix / "include").rglob("*.h")):
        writer.add(str(file.relative_to(prefix)), file.read_bytes())
    root = prefix / "lib" / f"python{MINOR}"
    for file in sorted(root.rglob("*")):
        parts = file.relative_to(root).parts
        skipped = parts[0] in _LEFT_OUT or "__pycache__" in parts or file.name.startswith(_MODULES_LEFT_OUT)
        if file.is_file() and not skipped and not file.name.endswith(".a"):
            writer.add(str(file.relative_to(prefix)), file.read_bytes(), 0o755 if file.suffix == ".so" else 0o644)
    # What the real archives have too, and px leaves out.
    writer.add(f"lib/python{MINOR}/__pycache__/os.cpython-312.pyc", b"of another machine")
    writer.add(f"lib/python{MINOR}/site-packages/pip/__init__.py", b"")
    writer.add(f"lib/python{MINOR}/test/__init__.py", b"")


def _row(version: str, machine: str, archive: Path) -> dict[str, object]:
    major, minor, patch = (int(part) for part in version.split("."))
    return {
        f"cpython-{version}-linux-{machine}-gnu": {
            "name": "cpython",
            "arch": {"family": machine, "variant": None},
            "os": "linux",
            "libc": "gnu",
            "major": major,
            "minor": minor,
            "patch": patch,
            "prerelease": "",
            "url": archive.as_uri(),
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "variant": None,
            "build": "20240101",
        }
    }
