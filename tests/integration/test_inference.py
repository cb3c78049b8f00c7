"""Inference and the link check on real things: wheels from the index, Debian's own builds, real bases.

What px builds from an sdist links to the base's libraries; Debian's packages of the same projects do too, so
their extension modules stand in for it here and need no compiler.
"""

from __future__ import annotations

import lzma
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from px.debian.archive import FILE, members, read_deb
from px.debian.deb822 import parse_stanza, stanzas
from px.debian.mirror import mirrors
from px.errors import PxError
from px.http import Http
from px.project.uv import find_uv
from px.sandbox.layers.base import ensure_base, load_base_lock
from px.sandbox.layers.system import ensure_system_layer
from px.sandbox.manifest import SandboxManifest
from px.sandbox.needs import capabilities, sonames
from px.sandbox.needs.inference import Inference, LockedPackage, infer_env
from px.sandbox.needs.linkcheck import check_layers, link_error
from px.sandbox.needs.merged import Contents, base_sonames
from px.store.files import write_atomically
from px.store.locks import locked
from px.store.objects import Store
from tests.support.trees import put_pkg_build, write_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.home import Home

pytestmark = pytest.mark.network
SITE = "usr/local/lib/python3.11/site-packages"


@dataclass(frozen=True)
class World:
    """Everything that is fetched, kept between runs."""

    home: Home

    @cached_property
    def store(self) -> Store:
        return Store(self.home)

    @property
    def cache(self) -> Path:
        return self.home.root / "tests" / "inference"

    def system(self, base: str, *names: str, architecture: str = "amd64") -> list[Contents]:
        """The base, and the layer with these capabilities if it lacks any of them."""
        found = ensure_base(self.store, load_base_lock(base, architecture))
        more = ensure_system_layer(self.store, found, names) if names else None
        return [layer.contents(self.store) for layer in (found, more) if layer is not None]

    def wheel(self, requirement: str) -> dict[str, bytes]:
        """The ELF files and RECORD of a wheel for CPython 3.11 on x86_64, below ``lib/``."""
        target = self.cache / "wheels" / requirement
        with locked(self.cache / "locks" / requirement):
            if not target.is_dir():
                _install(requirement, target)
        found = {path: path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()}
        kept = {p: c for p, c in found.items() if c[:4] == b"\x7fELF" or p.name == "RECORD"}
        return {f"lib/{path.relative_to(target)}": content for path, content in kept.items()}

    def debian_module(self, package: str) -> dict[str, bytes]:
        """The extension modules of a Debian package of bookworm, as an sdist's build would place them."""
        prefix = "usr/lib/python3/dist-packages/"
        found = members(read_deb(self._deb(package)).data)
        return {
            f"lib/{m.path.removeprefix(prefix)}": bytes(m.content)
            for m in found
            if m.kind == FILE and m.path.startswith(prefix)
        }

    def _deb(self, package: str) -> bytes:
        path = self.cache / "debs" / package
        with locked(self.cache / "locks" / "debs"):
            if not path.exists():
                write_atomically(path, Http().get(self._mirror + self._pool[package]), durable=False)
        return path.read_bytes()

    @cached_property
    def _mirror(self) -> str:
        return mirrors(load_base_lock("debian-12", "amd64").date)[0].main + "/"

    @cached_property
    def _pool(self) -> dict[str, str]:
        text = lzma.decompress(Http().get(self._mirror + "dists/bookworm/main/binary-amd64/Packages.xz")).decode()
        rows = (parse_stanza(s) for s in stanzas(text) if s.startswith("Package: python3-"))
        return {row["Package"]: row["Filename"] for row in rows}


def _install(requirement: str, target: Path) -> None:
    part = target.with_suffix(".part")
    where = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36", "--target", str(part)]
    what = ["--no-deps", "--only-binary", ":all:", "--link-mode", "copy", requirement]
    done = subprocess.run(
        [find_uv(), "pip", "install", "--quiet", *where, *what], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    part.rename(target)


@pytest.fixture(scope="module")
def world(warm_home: Home) -> World:
    return World(warm_home)


@pytest.fixture(scope="module")
def debian_12(world: World) -> frozenset[str]:
    return base_sonames(world.system("debian-12"), "x86_64", world.home)


def infer_one(store: Store, name: str, files: Mapping[str, bytes], base: frozenset[str], *, sdist: bool) -> Inference:
    oid = put_pkg_build(store, name, files)
    return infer_env(store, [LockedPackage(name, "1.0", oid, sdist)], base, "debian-12")


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("psycopg2-binary==2.9.10", {}),
        ("lxml==6.0.2", {}),
        ("pillow==12.0.0", {}),
        ("pycurl==7.45.6", {}),
        ("cffi==2.0.0", {}),
        ("opencv-python-headless==4.12.0.88", {}),
        ("opencv-python==4.12.0.88", {"opengl": "libGL.so.1"}),
        ("lightgbm==4.6.0", {"openmp": "libgomp.so.1"}),
        ("pyodbc==5.3.0", {"odbc": "libodbc.so.2"}),
    ],
)
def test_wheels_need_exactly_what_they_do_not_bring(
    world: World, store: Store, debian_12: frozenset[str], requirement: str, expected: dict[str, str]
) -> None:
    name = requirement.partition("==")[0]
    files = world.wheel(requirement)
    assert any(".so" in path for path in files)
    found = infer_one(store, name, files, debian_12, sdist=False)
    reasons = {c: {r.soname for r in rows} for c, rows in found.reasons.items()}
    assert set(reasons) == set(expected)
    for capability, soname in expected.items():
        assert soname in reasons[capability]
        assert all(r.source == "elf" and r.file and name in r.text for r in found.reasons[capability])


@pytest.mark.parametrize(
    ("name", "package", "expected", "soname"),
    [
        ("psycopg2", "python3-psycopg2", "postgres", "libpq.so.5"),
        ("lxml", "python3-lxml", "xml", "libxml2.so.2"),
        ("mysqlclient", "python3-mysqldb", "mysql", "libmariadb.so.3"),
        ("python-ldap", "python3-ldap", "ldap", "libldap-2.5.so.0"),
        ("cffi", "python3-cffi-backend", "ffi", None),
        ("pycurl", "python3-pycurl", "curl", None),  # Debian's links to the GnuTLS flavour, which px does not have
    ],
)
def test_what_is_built_against_the_base_needs_the_capability(
    world: World, store: Store, debian_12: frozenset[str], name: str, package: str, expected: str, soname: str | None
) -> None:
    found = infer_one(store, name, world.debian_module(package), debian_12, sdist=True)
    assert found.capabilities == {expected}
    sources = {r.source for r in found.reasons[expected]}
    assert sources == ({"lock", "elf"} if soname else {"lock"})
    assert soname is None or soname in {r.soname for r in found.reasons[expected]}


def test_pillow_built_from_source_needs_imagecodecs_and_finds_all_of_it_there(
    world: World, store: Store, debian_12: frozenset[str]
) -> None:
    files = {p: c for p, c in world.debian_module("python3-pil").items() if "_imaging." in p}
    found = infer_one(store, "pillow", files, debian_12, sdist=True)
    needed = {r.soname for r in found.reasons["imagecodecs"]}
    assert {"libjpeg.so.62", "libtiff.so.6", "libopenjp2.so.7"} <= needed
    assert found.capabilities <= {"imagecodecs", "x11"}  # Debian's build can take screenshots, too


def image(world: World, tmp_path: Path, files: Mapping[str, bytes], *capabilities_: str) -> list[Contents]:
    """An image of debian-12 with these files of one distribution, psycopg2, in site-packages."""
    placed = {f"{SITE}/{path.removeprefix('lib/')}": content for path, content in files.items()}
    rows = "".join(f"{path.removeprefix(SITE + '/')},,\n" for path in placed)
    placed[f"{SITE}/psycopg2-2.9.5.dist-info/RECORD"] = rows.encode()
    root = tmp_path / "env"
    return [*world.system("debian-12", *capabilities_), Contents(root, write_tree(root, placed))]


def test_the_link_check_stops_an_image_that_lacks_libpq(world: World, tmp_path: Path) -> None:
    modules = {p: c for p, c in world.debian_module("python3-psycopg2").items() if p.endswith(".so")}
    problems = check_layers(image(world, tmp_path, modules), "debian-12", world.home)
    assert {(p.missing, p.package, p.capability, p.fatal) for p in problems} == {
        ("libpq.so.5", "psycopg2", "postgres", True)
    }
    error = link_error(problems, "debian-12")
    assert isinstance(error, PxError)
    text = str(error)
    assert "PX902" in text
    assert "_psycopg." in text
    assert "px sandbox add postgres" in text


def test_with_the_capability_the_image_is_sound(world: World, tmp_path: Path) -> None:
    modules = {p: c for p, c in world.debian_module("python3-psycopg2").items() if p.endswith(".so")}
    assert check_layers(image(world, tmp_path, modules, "postgres"), "debian-12", world.home) == ()


def test_a_program_of_a_newer_glibc_is_caught_with_the_base_that_would_do(world: World, tmp_path: Path) -> None:
    newer = world.system("debian-13")[0].root / "usr/bin/ls"
    layers = image(world, tmp_path, {"lib/psycopg2/bin.cpython-311-x86_64-linux-gnu.so": newer.read_bytes()})
    problems = [p for p in check_layers(layers, "debian-12", world.home) if p.kind == "version"]
    assert problems
    assert {p.library for p in problems} == {"libc.so.6"}
    assert {(p.package, p.bases, p.fatal) for p in problems} == {("psycopg2", ("debian-13",), True)}
    error = link_error(problems, "debian-12")
    assert error is not None
    assert '[tool.px.sandbox].base = "debian-13"' in str(error)


@pytest.mark.parametrize("base", ["debian-12", "debian-13"])
def test_a_base_with_common_capabilities_finds_everything(world: World, base: str) -> None:
    names = ("curl", "imagecodecs", "ldap", "magic", "mysql", "pango", "postgres", "xml", "xmlsec")
    layers = world.system(base, *names)
    assert check_layers(layers, base, world.home) == ()
    found = base_sonames(layers, "x86_64", world.home)
    table = sonames.tables()[base].owners
    promised = {soname for soname, owners in table.items() if set(owners) & set(names)}
    assert promised - found == set()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
@pytest.mark.parametrize("base", ["debian-12", "debian-13"])
def test_every_capability_of_a_base_is_sound_and_brings_what_the_table_says(
    world: World, base: str, architecture: str
) -> None:
    names = [row.name for row in capabilities.table().values() if base in row.packages]
    layers = world.system(base, *names, architecture=architecture)
    assert [p for p in check_layers(layers, base, world.home) if p.fatal] == []
    found = base_sonames(layers, {"amd64": "x86_64", "arm64": "aarch64"}[architecture], world.home)
    assert set(sonames.tables()[base].owners) - found == set()


def test_switching_it_off_takes_it_out(world: World, store: Store, debian_12: frozenset[str]) -> None:
    found = infer_one(store, "psycopg2", world.debian_module("python3-psycopg2"), debian_12, sdist=True)
    assert SandboxManifest().effective(found.capabilities) == {"postgres"}
    assert SandboxManifest(disabled=frozenset({"postgres"})).effective(found.capabilities) == frozenset()
