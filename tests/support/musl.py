"""Programs for musl, made on a glibc machine from Debian's own source packages: CPython, a C compiler, musl itself.

They stand in for Alpine's packages, which no test can reach: real programs on a real musl, but not Alpine's builds of
them.  Making them takes minutes, so they are kept in the home that outlives the run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from px.debian.mirror import mirrors
from px.http import Download, FetchError, Http
from px.store.locks import locked
from px.store.tree import remove_tree
from tests.support.needs import lacks, need

DATE = "20251001T000000Z"
"""A time at which the snapshot archive has these sources; ordinary mirrors have them as long as Debian 12 and 13."""
# What programs import of CPython is enough; its tests and its graphical editor are a third of it.
_LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "__pycache__")
# Modules that take long to compile, or that need libraries which are not there.
_UNUSED = (
    *(f"_codecs_{name}" for name in ("cn", "hk", "iso2022", "jp", "kr", "tw")),
    *("_ctypes", "_curses", "_curses_panel", "_multibytecodec", "audioop", "xxlimited", "xxlimited_35"),
)
# A compiler that is small enough to be made in seconds.  gcc would take an hour.
_TCC = (
    "--prefix=/usr", "--config-musl", "--cc=musl-gcc", "--triplet=", "--sysincludepaths={B}/include:/usr/include",
    "--libpaths=/usr/lib:/lib", "--crtprefix=/usr/lib", "--elfinterp=/lib/ld-musl-x86_64.so.1",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """The original archive of a source package in Debian."""

    path: str
    sha256: str


PYTHON = Source(
    "python3.11/python3.11_3.11.2.orig.tar.gz", "2411c74bda5bbcfcddaf4531f66d1adc73f247f529aee981b029513aefdbf849"
)
ZLIB = Source("zlib/zlib_1.2.13.dfsg.orig.tar.bz2", "71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1")
# Debian 13's, as old as Alpine 3.20's.  numpy's libraries have packed relocations, which 1.2.3 does not know.
MUSL = Source("musl/musl_1.2.5.orig.tar.gz", "a9a118bbe84d8764da0ea0d28b3ab3fae8477fc7e4085d90102b8596fc7c75e4")
TCC = Source(
    "tcc/tcc_0.9.27+git20200814.62c30a4a.orig.tar.bz2",
    "d63c113bcdd657f51c8ee197a0b0a24203603313e19a52b5f678d40ab7f5df35",
)


def built(cache: Path) -> Path:
    """A directory with the trees ``musl``, ``python`` and ``compiler``, made if it is not there yet."""
    need("musl", "make")
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    with locked(cache / "lock"):
        if not (cache / recipe).is_dir():
            remove_tree(cache / "making")
            _make(cache / "making")
            (cache / "making" / "made").rename(cache / recipe)
            remove_tree(cache / "making")
    return cache / recipe


def _make(work: Path) -> None:
    zlib = _unpack(ZLIB, work / "zlib")
    _run(zlib, "./configure", "--static", CC="musl-gcc", CFLAGS="-O2 -fPIC")
    _run(zlib, "make", "libz.a")
    _python(_unpack(PYTHON, work / "python"), zlib, work / "made" / "python")
    _compiler(_unpack(TCC, work / "tcc"), work / "made" / "compiler")
    _musl(_unpack(MUSL, work / "musl"), work / "made" / "musl")


def _python(source: Path, zlib: Path, to: Path) -> None:
    path = {"PATH": f"{_gcc(source.parent / 'bin')}:{os.environ['PATH']}"}
    where = {"CPPFLAGS": f"-I{zlib}", "LDFLAGS": f"-L{zlib}"}
    flags = ("--prefix=/usr", "--without-ensurepip", "--disable-test-modules", "--with-pkg-config=no")
    _run(
        source,
        "./configure",
        "-q",
        "--build=x86_64-linux-musl",
        *flags,
        "CC=gcc",
        "OPT=-O1 -g0 -DNDEBUG",
        **path,
        **where,
    )
    (source / "Modules/Setup.local").write_text("*disabled*\n" + "\n".join(_UNUSED))
    _run(source, "make", "-s", f"-j{os.cpu_count()}", "all", **path)
    # `make install` would compile every module three times over.
    _run(source, "make", "-s", "altbininstall", "inclinstall", "sharedinstall", f"DESTDIR={to}", **path)
    library = to / "usr/lib/python3.11"
    shutil.copytree(source / "Lib", library, ignore=shutil.ignore_patterns(*_LEFT_OUT), dirs_exist_ok=True)
    for data in source.glob("build/lib.*/_sysconfigdata_*.py"):
        shutil.copy(data, library)
    (to / "usr/lib/libpython3.11.a").unlink(missing_ok=True)
    (to / "usr/bin/python3").symlink_to("python3.11")


def _gcc(directory: Path) -> Path:
    """A gcc for musl, as Alpine has it: CPython remembers its name.  Nothing names directories of Debian's."""
    scripts = {
        "gcc": 'case "$*" in *print-multiarch*) exit 0;; esac\nexec musl-gcc "$@"\n',
        "dpkg-architecture": "exit 1\n",
    }
    directory.mkdir()
    for name, script in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}")
        (directory / name).chmod(0o755)
    return directory


def _compiler(source: Path, to: Path) -> None:
    _run(source, "./configure", *_TCC)
    _run(source, "make", "-s", "tcc", "libtcc1.a", "x86_64-libtcc1-usegcc=yes")
    shutil.copytree(source / "include", to / "usr/lib/tcc/include")
    shutil.copy(source / "libtcc1.a", to / "usr/lib/tcc")
    (to / "usr/bin").mkdir(parents=True)
    shutil.copy(source / "tcc", to / "usr/bin/gcc")
    (to / "usr/bin/cc").symlink_to("gcc")


def _musl(source: Path, to: Path) -> None:
    # Alpine's has this name too.
    flags = ("LDFLAGS=-Wl,-soname,libc.musl-x86_64.so.1", "CFLAGS=-O1 -g0")
    _run(source, "./configure", "--prefix=/usr", "--syslibdir=/lib", "--disable-wrapper", "--disable-static", *flags)
    _run(source, "make", "-s", f"-j{os.cpu_count()}")
    _run(source, "make", "-s", "install", f"DESTDIR={to}")


def _unpack(source: Source, to: Path) -> Path:
    """Unpack a source below ``to``; the directory that has its configure."""
    to.mkdir(parents=True)
    archive = to.with_suffix(".tar")
    _fetch(source, archive)
    with tarfile.open(archive) as tar:
        tar.extractall(to)
    return next(path.parent for path in (to / "configure", *to.glob("*/configure")) if path.is_file())


def _fetch(source: Source, to: Path) -> None:
    problem = ""
    for mirror in mirrors(DATE):
        initial = source.path[:1]
        url = mirror.url("bookworm", f"pool/main/{initial}/{source.path}")
        try:
            Http().fetch(Download(url, source.sha256, None, lambda _: None), to)
        except FetchError as e:
            problem = e.reason
        else:
            return
    lacks("a Debian mirror", f"{source.path}: {problem}")


def _run(directory: Path, *command: str, **variables: str) -> None:
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"], "HOME": str(directory), **variables}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
