"""Inference from names and files: every rule with a package that needs it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from px.sandbox.needs.inference import Inference, LockedPackage, Unknown, build_capabilities, infer
from px.sandbox.needs.inspection import Inspection, Need, inspect_pkg_build
from tests.support.elf import make_elf
from tests.support.trees import put_pkg_build

if TYPE_CHECKING:
    from px.store.objects import Store

BASE = frozenset({"libc.so.6", "libm.so.6", "libz.so.1", "libssl.so.3", "libgcc_s.so.1"})
EXT = "cpython-311-x86_64-linux-gnu.so"


def locked(name: str, oid: str | None = None, *, sdist: bool = False) -> LockedPackage:
    return LockedPackage(name, "1.0", oid, sdist)


def infer_files(store: Store, name: str, files: dict[str, bytes], *, sdist: bool = False) -> Inference:
    oid = put_pkg_build(store, name, files)
    return infer([locked(name, oid, sdist=sdist)], {oid: inspect_pkg_build(store, oid)}, BASE, "debian-12")


def found(inference: Inference) -> dict[str, list[str]]:
    return {name: [r.text for r in reasons] for name, reasons in inference.reasons.items()}


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        ("psycopg2", {"postgres"}), ("Pillow", {"imagecodecs"}), ("lxml", {"xml"}), ("mysqlclient", {"mysql"}),
        ("pycurl", {"curl"}), ("python-ldap", {"ldap"}), ("python_ldap", {"ldap"}), ("cffi", {"ffi"}),
        ("xmlsec", {"xmlsec"}), ("GDAL", {"geo"}), ("uWSGI", {"libpython"}), ("requests", set()),
    ],
)  # fmt: skip
def test_sdists_need_what_they_are_built_against_and_wheels_do_not(name: str, capabilities: set[str]) -> None:
    assert infer([locked(name, sdist=True)], {}, BASE, "debian-12").capabilities == capabilities
    assert infer([locked(name)], {}, BASE, "debian-12").capabilities == frozenset()
    assert set(build_capabilities(name)) == capabilities


@pytest.mark.parametrize(
    ("name", "capability", "said"),
    [
        ("python-magic", "magic", "opens libmagic.so.1 at run time"),
        ("WeasyPrint", "pango", "opens libpango-1.0.so.0 at run time"),
        ("pyzbar", "barcode", "opens libzbar.so.0 at run time"),
        ("pytesseract", "ocr", "runs tesseract at run time"),
        ("GitPython", "git", "runs git at run time"),
        ("psycopg", "postgres", "opens libpq.so.5 at run time"),
    ],
)
def test_what_no_elf_header_shows(name: str, capability: str, said: str) -> None:
    result = infer([locked(name)], {}, BASE, "debian-12")
    assert found(result) == {capability: [f"{name} {said}"]}
    assert [r.source for r in result.reasons[capability]] == ["lock"]


def test_a_distribution_that_brings_the_library_is_enough() -> None:
    assert not infer([locked("psycopg"), locked("psycopg_binary")], {}, BASE, "debian-12").capabilities


def test_a_library_of_the_base_needs_no_capability() -> None:
    assert not infer([locked("python-magic")], {}, BASE | {"libmagic.so.1"}, "debian-12").capabilities


def test_an_extension_that_links_to_the_system(store: Store) -> None:
    name = f"lib/psycopg2/_psycopg.{EXT}"
    result = infer_files(store, "psycopg2", {name: make_elf("libpq.so.5", "libc.so.6", "libssl.so.3")}, sdist=True)
    built = "psycopg2: its sdist is built against it"
    assert found(result) == {"postgres": [built, f"psycopg2: {name} needs libpq.so.5"]}
    reason = result.reasons["postgres"][1]
    assert (reason.source, reason.file, reason.soname) == ("elf", name, "libpq.so.5")


@pytest.mark.parametrize("tag", ["rpath", "runpath"])
def test_bundled_libraries_need_nothing(store: Store, tag: str) -> None:
    path = {tag: "$ORIGIN/../x.libs"}
    files = {
        f"lib/x/_x.{EXT}": make_elf("libpq-1a2b.so.5", **path),  # type: ignore[arg-type]
        "lib/x.libs/libpq-1a2b.so.5": make_elf("libldap-3c4d.so.2", "libc.so.6", soname="libpq-1a2b.so.5"),
        "lib/x.libs/libldap-3c4d.so.2": make_elf("libc.so.6", soname="libldap-3c4d.so.2"),
    }
    result = infer_files(store, "x", files)
    assert (found(result), result.unknown) == ({}, ())


def test_what_a_bundled_library_needs_counts(store: Store) -> None:
    files = {
        f"lib/x/_x.{EXT}": make_elf("libQt-1.so.5", runpath="$ORIGIN/../x.libs"),
        "lib/x.libs/libQt-1.so.5": make_elf("libGL.so.1", "libglib-2.0.so.0", soname="libQt-1.so.5"),
    }
    # GLib comes with opengl, which is needed anyway: glib is not added beside it.
    assert set(found(infer_files(store, "x", files))) == {"opengl"}
    assert set(found(infer_files(store, "y", {f"lib/y.{EXT}": make_elf("libglib-2.0.so.0")}))) == {"glib"}


def test_plugins_and_tests_do_not_count(store: Store) -> None:
    files = {
        f"lib/x/_x.{EXT}": make_elf("libc.so.6"),
        "lib/x/plugins/libqsqlpsql.so": make_elf("libpq.so.5"),
        "lib/deploy_libs/_ssl.cpython-311-x86_64-linux-gnu.so": make_elf("libpq.so.5"),
        f"lib/x/tests/_t.{EXT}": make_elf("libcurl.so.4"),
        "lib/x/libprovider_cuda.so": make_elf("libmagic.so.1"),  # loaded by nobody that must work
    }
    assert not infer_files(store, "x", files).capabilities


def test_a_package_that_loads_its_library_with_ctypes(store: Store) -> None:
    files = {"lib/lightgbm/lib/lib_lightgbm.so": make_elf("libgomp.so.1", "libc.so.6")}
    assert set(found(infer_files(store, "lightgbm", files))) == {"openmp"}


def test_programs_in_bin_count(store: Store) -> None:
    files = {"bin/tool": make_elf("libcurl.so.4", interpreter="/lib64/ld-linux-x86-64.so.2")}
    assert set(found(infer_files(store, "tool", files | {f"lib/x.{EXT}": make_elf()}))) == {"curl"}


def test_the_wrong_architecture_does_not_satisfy(store: Store) -> None:
    files = {
        f"lib/x/_x.{EXT}": make_elf("libpq.so.5", runpath="$ORIGIN"),
        "lib/x/libpq.so.5": make_elf(soname="libpq.so.5", machine="aarch64"),
    }
    assert set(found(infer_files(store, "x", files))) == {"postgres"}


def test_another_package_counts_only_where_the_loader_looks(store: Store) -> None:
    owner = put_pkg_build(store, "owner", {"lib/owner/lib/libgomp.so.1": make_elf(soname="libgomp.so.1")})
    near = put_pkg_build(store, "near", {f"lib/near/n.{EXT}": make_elf("libgomp.so.1", runpath="$ORIGIN/../owner/lib")})
    far = put_pkg_build(store, "far", {f"lib/far/f.{EXT}": make_elf("libgomp.so.1")})
    seen = {oid: inspect_pkg_build(store, oid) for oid in (owner, near, far)}
    both = infer([locked("owner", owner), locked("near", near)], seen, BASE, "debian-12")
    assert not both.capabilities
    assert infer([locked("near", near)], seen, BASE, "debian-12").capabilities == {"openmp"}
    assert infer([locked("owner", owner), locked("far", far)], seen, BASE, "debian-12").capabilities == {"openmp"}


def test_a_library_that_no_capability_has_is_reported_not_guessed(store: Store) -> None:
    name = f"lib/x.{EXT}"
    result = infer_files(store, "x", {name: make_elf("libcuda.so.1", "libssl.so.1.1")})
    assert not result.capabilities
    assert result.unknown == (Unknown("x", name, "libcuda.so.1"), Unknown("x", name, "libssl.so.1.1"))


def test_the_result_does_not_depend_on_the_order() -> None:
    needs = [
        Need(f"lib/{n}.so", n, True, "x86_64", ())
        for n in ("libGL.so.1", "libglib-2.0.so.0", "libcairo.so.2", "libX11.so.6")
    ]
    packages = [locked(f"p{i}", str(i), sdist=True) for i in range(4)] + [
        locked("psycopg2", sdist=True),
        locked("pyzbar"),
    ]
    inspections = {str(i): Inspection((need,), ()) for i, need in enumerate(needs)}
    first = infer(packages, inspections, BASE, "debian-12")
    for seed in range(20):
        shuffled = random.Random(seed).sample(packages, len(packages))
        assert infer(shuffled, dict(reversed(inspections.items())), BASE, "debian-12") == first
    assert list(first.reasons) == sorted(first.reasons)


def test_inspection_is_cached_by_oid_and_a_broken_cache_is_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = put_pkg_build(store, "x", {f"lib/x.{EXT}": make_elf("libpq.so.5")})
    first = inspect_pkg_build(store, oid)
    with monkeypatch.context() as patch:
        patch.setattr("px.sandbox.needs.inspection.read_elf", None)  # no file is read again
        assert inspect_pkg_build(store, oid) == first
    (cached,) = [p for p in (store.home.root / "cache").rglob("*") if p.is_file()]
    for damage in (b"", b"[[1]]", b"{", b'[["a", "b"]]', b"7"):
        cached.write_bytes(damage)
        assert inspect_pkg_build(store, oid) == first


@pytest.mark.parametrize(("name", "wanted"), [("shapely", {"geos"}), ("pyproj", {"proj"}), ("fiona", {"geo"})])
def test_geometry_and_projections_do_not_bring_all_of_gdal(name: str, wanted: set[str]) -> None:
    locked = LockedPackage(name, "1.0", None, from_sdist=True)
    assert infer([locked], {}, frozenset(), "debian-12").capabilities == wanted
