"""The link check on small images: what it finds, whom it blames, and what it lets pass."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import pytest

from px.sandbox.needs import sonames
from px.sandbox.needs.linkcheck import Problem, check_layers, excuse, link_error
from px.sandbox.needs.merged import Contents, base_sonames, merge
from tests.support.elf import make_elf
from tests.support.trees import write_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from px.home import Home

LIB = "usr/lib/x86_64-linux-gnu"
SITE = "usr/local/lib/python3.11/site-packages"
EXT = "cpython-311-x86_64-linux-gnu.so"
LIBC = make_elf(soname="libc.so.6", versions=("GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.36"))
BASE: dict[str, bytes | str] = {
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    f"{LIB}/libc.so.6": LIBC,
    f"{LIB}/libz.so.1": "libz.so.1.2.13",
    f"{LIB}/libz.so.1.2.13": make_elf("libc.so.6", soname="libz.so.1"),
    "usr/lib64/ld-linux-x86-64.so.2": "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    f"{LIB}/ld-linux-x86-64.so.2": make_elf(soname="ld-linux-x86-64.so.2"),
}
RECORD = f"{SITE}/x-1.0.dist-info/RECORD"


def layers(tmp_path: Path, *contents: Mapping[str, bytes | str]) -> list[Contents]:
    made = []
    for number, content in enumerate((BASE, *contents)):
        root = tmp_path / str(number)
        made.append(Contents(root, write_tree(root, content), f"{tmp_path.name}-{number}"))
    return made


def env(files: Mapping[str, bytes | str], package: str = "x") -> dict[str, bytes | str]:
    """Files of one distribution in site-packages, with the RECORD that says so."""
    rows = "".join(f"{path},sha256=x,1\n" for path in files)
    placed: dict[str, bytes | str] = {f"{SITE}/{path}": content for path, content in files.items()}
    return placed | {f"{SITE}/{package}-1.0.dist-info/RECORD": rows.encode()}


def check(tmp_path: Path, *contents: Mapping[str, bytes | str], base: str = "debian-12") -> tuple[Problem, ...]:
    return check_layers(layers(tmp_path, *contents), base)


def test_a_sound_image_has_no_problems(tmp_path: Path) -> None:
    module = make_elf("libz.so.1", "libc.so.6", wants=(("libc.so.6", "GLIBC_2.34"),))
    tool = make_elf("libc.so.6", interpreter="/lib64/ld-linux-x86-64.so.2")
    assert check(tmp_path, {"usr/bin/tool": tool}, env({f"x/_x.{EXT}": module})) == ()


def test_a_missing_library_names_the_file_the_package_and_the_capability(tmp_path: Path) -> None:
    (problem,) = check(tmp_path, env({f"x/_x.{EXT}": make_elf("libpq.so.5", "libc.so.6")}))
    assert problem == Problem(
        kind="library",
        missing="libpq.so.5",
        file=f"{SITE}/x/_x.{EXT}",
        package="x",
        capability="postgres",
        bases=("debian-12", "debian-13"),
        library=None,
        fatal=True,
    )
    error = link_error([problem], "debian-12")
    assert error is not None
    text = str(error)
    assert error.code == "PX902"
    assert "libpq.so.5" in error.what
    assert f"{SITE}/x/_x.{EXT} (x) needs libpq.so.5" in text
    assert "px sandbox add postgres" in text
    assert "[tool.px.sandbox.capabilities].postgres = true" in text
    assert "If it can do without: set [tool.px.sandbox.capabilities].postgres = false" in text


def test_what_the_manifest_rules_out_by_name_is_missing_on_purpose(tmp_path: Path) -> None:
    problems = check(tmp_path, env({f"x/_x.{EXT}": make_elf("libpq.so.5", "libcurl.so.4")}))
    left = excuse(problems, frozenset({"postgres"}))
    assert {p.missing: p.fatal for p in left} == {"libpq.so.5": False, "libcurl.so.4": True}
    assert link_error(excuse(problems, frozenset({"postgres", "curl"})), "debian-12") is None


def test_plugins_of_a_package_that_has_no_modules(tmp_path: Path) -> None:
    """nvidia-nvshmem's transports: opened by name, where there is such a network."""
    files: dict[str, bytes | str] = {
        "nvidia/nvshmem/lib/libnvshmem_host.so.3": make_elf("libc.so.6", "libcurl.so.4"),
        "nvidia/nvshmem/lib/nvshmem_bootstrap_mpi.so.3": make_elf("libmpi.so.40"),
        "nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.7": make_elf(
            "libfabric.so.1", wants=(("libfabric.so.1", "FABRIC_1.8"),)
        ),
    }
    fabric = {f"{LIB}/libfabric.so.1": make_elf(soname="libfabric.so.1", versions=("FABRIC_1.6",))}
    problems = check(tmp_path, fabric, env(files))
    found = {p.missing: p.fatal for p in problems}
    assert found == {"libcurl.so.4": True, "libmpi.so.40": False, "FABRIC_1.8": False}


def test_a_version_of_a_capability_s_library_names_the_base_that_has_it(tmp_path: Path) -> None:
    module = make_elf(
        "libfabric.so.1", "libodd.so.1", wants=(("libfabric.so.1", "FABRIC_1.8"), ("libodd.so.1", "ODD_9"))
    )
    old = {f"{LIB}/lib{name}.so.1": make_elf(soname=f"lib{name}.so.1", versions=("X_1",)) for name in ("fabric", "odd")}
    error = link_error(check(tmp_path, old, env({f"x/_x.{EXT}": module})), "debian-12")
    assert error is not None
    assert error.fix[0] == 'For FABRIC_1.8, set [tool.px.sandbox].base = "debian-13", which has it'
    assert "or a base with a newer libodd.so.1" in error.fix[1]


def test_shared_libraries_are_blamed_on_what_is_missing_anyway(tmp_path: Path) -> None:
    needed = ("libglib-2.0.so.0", "libGL.so.1", "libpq.so.5", "libcurl.so.4", "libmagic.so.1")
    problems = check(tmp_path, env({f"x/_x.{EXT}": make_elf(*needed)}))
    error = link_error(problems, "debian-12")
    assert error is not None
    assert error.fix[0] == "Run: px sandbox add curl magic opengl postgres"
    assert error.fix[1].endswith("[tool.px.sandbox.capabilities]: curl, magic, opengl, postgres")
    (alone,) = check(tmp_path / "alone", env({f"x/_x.{EXT}": make_elf("libglib-2.0.so.0")}))
    assert alone.capability == "glib"


def test_a_newer_glibc_names_the_base_that_would_do(tmp_path: Path) -> None:
    module = make_elf("libc.so.6", wants=(("libc.so.6", "GLIBC_2.38"),))
    (problem,) = check(tmp_path, env({f"x/_x.{EXT}": module}))
    assert (problem.kind, problem.missing, problem.library) == ("version", "GLIBC_2.38", "libc.so.6")
    assert (problem.bases, problem.package, problem.fatal) == (("debian-13",), "x", True)
    error = link_error([problem], "debian-12")
    assert error is not None
    assert 'set [tool.px.sandbox].base = "debian-13"' in error.fix[0]


def test_a_glibc_that_no_base_has_says_so(tmp_path: Path) -> None:
    module = make_elf("libc.so.6", wants=(("libc.so.6", "GLIBC_2.99"),))
    (problem,) = check(tmp_path, env({f"x/_x.{EXT}": module}))
    error = link_error([problem], "debian-12")
    assert error is not None
    assert "choose an older version of x" in error.fix[0]


def test_weak_versions_and_libraries_without_versions_pass(tmp_path: Path) -> None:
    plain = make_elf(soname="libplain.so.1")
    module = make_elf(
        "libc.so.6",
        "libplain.so.1",
        weak=(("libc.so.6", "GLIBC_2.99"),),
        wants=(("libplain.so.1", "PLAIN_1"),),
    )
    assert check(tmp_path, {f"{LIB}/libplain.so.1": plain}, env({f"x/_x.{EXT}": module})) == ()


def test_what_comes_with_the_driver_is_not_missing(tmp_path: Path) -> None:
    module = make_elf("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13", "libc.so.6")
    assert [p.missing for p in check(tmp_path, env({f"x/_x.{EXT}": module}))] == ["libcudart.so.13"]


def test_plugins_and_unknown_libraries_are_warnings(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        f"x/_x.{EXT}": make_elf("libodd.so.1"),
        "x/plugins/libqsqlpsql.so": make_elf("libpq.so.5"),
        f"x/tests/_t.{EXT}": make_elf("libcurl.so.4"),
    }
    problems = check(tmp_path, env(files))
    assert {p.missing: p.fatal for p in problems} == {"libodd.so.1": False, "libpq.so.5": False, "libcurl.so.4": False}
    assert link_error(problems, "debian-12") is None


def test_what_the_package_brings_and_preloads_is_no_problem(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        f"x/_x.{EXT}": make_elf("libgomp.so.1"),
        "x/vendor/libgomp.so.1": make_elf(soname="libgomp.so.1"),
    }
    assert check(tmp_path, env(files)) == ()
    (problem,) = check(tmp_path / "other", env(files), env({f"y/_y.{EXT}": make_elf("libgomp.so.1")}, "y"))
    assert (problem.package, problem.capability, problem.fatal) == ("y", "openmp", True)


@pytest.mark.parametrize("path", ["$ORIGIN/../x.libs", "${ORIGIN}/../x.libs", f"/{SITE}/x.libs", "/opt/$LIB"])
@pytest.mark.parametrize("tag", ["rpath", "runpath"])
def test_search_paths(tmp_path: Path, tag: str, path: str) -> None:
    module = make_elf("libpq.so.5", **{tag: path})  # type: ignore[arg-type]
    place = "opt/lib/x86_64-linux-gnu" if "LIB" in path else f"{SITE}/x.libs"
    content = {f"{SITE}/x/_x.{EXT}": module, f"{place}/libpq.so.5": make_elf(soname="libpq.so.5")}
    assert check(tmp_path, content) == ()


def test_runpath_hides_rpath_as_in_the_loader(tmp_path: Path) -> None:
    module = make_elf("libpq.so.5", rpath="/opt/a", runpath="/opt/b")
    content = {"usr/bin/x": module, "opt/a/libpq.so.5": make_elf(soname="libpq.so.5")}
    assert [p.missing for p in check(tmp_path, content)] == ["libpq.so.5"]


def test_directories_of_ld_so_conf_are_searched(tmp_path: Path) -> None:
    tool = make_elf("libpq.so.5")
    content = {"usr/bin/x": tool, "opt/pg/libpq.so.5": make_elf(soname="libpq.so.5")}
    assert len(check(tmp_path / "without", content)) == 1
    assert check(tmp_path / "with", {**content, "etc/ld.so.conf.d/pg.conf": b"# pg\n/opt/pg\n" + b" " * 64}) == ()


def test_the_wrong_architecture_is_passed_over(tmp_path: Path) -> None:
    content = {"usr/bin/x": make_elf("libpq.so.5"), f"{LIB}/libpq.so.5": make_elf(machine="aarch64")}
    assert [p.missing for p in check(tmp_path, content)] == ["libpq.so.5"]


def test_a_higher_layer_replaces_a_lower_one(tmp_path: Path) -> None:
    old, new = make_elf(soname="libq.so.1", versions=("Q_1",)), make_elf(soname="libq.so.1", versions=("Q_1", "Q_2"))
    tool = make_elf("libq.so.1", wants=(("libq.so.1", "Q_2"),))
    low = {f"{LIB}/libq.so.1": old, "usr/bin/x": tool}
    (problem,) = check(tmp_path / "a", low)
    assert (problem.kind, problem.fatal) == ("version", True)
    assert check(tmp_path / "b", low, {f"{LIB}/libq.so.1": new}) == ()
    assert check(tmp_path / "c", low, {f"{LIB}/libq.so.1": "libq.so.1.2", f"{LIB}/libq.so.1.2": new}) == ()


def test_system_files_are_fatal_in_the_usual_places_only(tmp_path: Path) -> None:
    sums = b"0123  usr/bin/psql\n0123  usr/lib/x86_64-linux-gnu/caca/plugin.so\n"
    content: dict[str, bytes | str] = {
        "usr/bin/psql": make_elf("libpq.so.5"),
        f"{LIB}/caca/plugin.so": make_elf("libGL.so.1"),
        "var/lib/dpkg/status.d/psql.md5sums": sums,
    }
    problems = check(tmp_path, content)
    assert [(p.missing, p.package, p.fatal) for p in problems] == [
        ("libpq.so.5", "psql", True),
        ("libGL.so.1", "psql", False),
    ]


def test_programs_that_a_distribution_installs_are_fatal(tmp_path: Path) -> None:
    record = b"x/_x.so,,\n../../../bin/tool,,\n"
    content: dict[str, bytes | str] = {
        f"{SITE}/x/_x.so": make_elf("libc.so.6"),
        f"{SITE}/x/bin/helper": make_elf("libcurl.so.4", interpreter="/lib64/ld-linux-x86-64.so.2"),
        "usr/local/bin/tool": make_elf("libpq.so.5", interpreter="/lib64/ld-linux-x86-64.so.2"),
        RECORD: record + b"x/bin/helper,,\n",
    }
    problems = check(tmp_path, content)
    assert [(p.missing, p.package, p.fatal) for p in problems] == [
        ("libpq.so.5", "x", True),
        ("libcurl.so.4", "x", False),
    ]


def test_a_missing_loader_is_a_problem(tmp_path: Path) -> None:
    (problem,) = check(tmp_path, {"usr/bin/x": make_elf(interpreter="/lib/ld-musl-x86_64.so.1")})
    assert (problem.kind, problem.missing, problem.fatal) == ("interpreter", "/lib/ld-musl-x86_64.so.1", True)


def test_a_program_for_another_system_inside_a_distribution_is_not_fatal(tmp_path: Path) -> None:
    """It has no modules of its own, so that all its files count; one that it installs has to run."""
    foreign = make_elf(interpreter="/lib/ld-linux.so.2")
    content = env({"x/flac-linux-x86": foreign}) | {"usr/local/bin/tool": foreign}
    content[RECORD] = b"x/flac-linux-x86,,\n../../../bin/tool,,\n"
    problems = check(tmp_path, content)
    found = [(p.missing, posixpath.basename(p.file), p.fatal) for p in problems]
    error = link_error(problems, "debian-12")
    assert error is not None
    assert error.fix[0] == "usr/local/bin/tool was made for another system: use another version or wheel of x"
    assert found == [("/lib/ld-linux.so.2", "tool", True), ("/lib/ld-linux.so.2", "flac-linux-x86", False)]


def test_links_in_circles_end(tmp_path: Path) -> None:
    content: dict[str, bytes | str] = {
        "usr/bin/x": make_elf("libq.so.1"),
        f"{LIB}/libq.so.1": "libq.so.2",
        f"{LIB}/libq.so.2": "libq.so.1",
    }
    assert [p.missing for p in check(tmp_path, content)] == ["libq.so.1"]


def test_base_sonames_are_the_names_that_programs_ask_for(tmp_path: Path) -> None:
    found = base_sonames(layers(tmp_path), "x86_64")
    assert found == {"libc.so.6", "libz.so.1", "libz.so.1.2.13", "ld-linux-x86-64.so.2"}
    assert base_sonames(layers(tmp_path / "again"), "aarch64") == frozenset()


def test_hard_links_are_files_too(tmp_path: Path) -> None:
    from px.store.tree import TreeWriter

    writer = TreeWriter(tmp_path / "tree")
    writer.file(f"{LIB}/libq.so.1", make_elf(soname="libq.so.1"))
    writer.hardlink("opt/q/libq.so.1", f"{LIB}/libq.so.1")
    merged = merge([Contents(tmp_path / "tree", writer.finish())])  # type: ignore[arg-type]
    found = merged.at("opt/q/libq.so.1")
    assert found is not None
    assert found.elf.soname == "libq.so.1"


def test_layers_are_read_once_and_kept(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    made = layers(tmp_path, env({f"x/_x.{EXT}": make_elf("libpq.so.5", wants=(("libc.so.6", "GLIBC_2.99"),))}))
    first = check_layers(made, "debian-12", home)
    assert first
    monkeypatch.setattr("px.sandbox.needs.inspection.read_elf", None)
    assert check_layers(made, "debian-12", home) == first


@pytest.mark.parametrize(
    ("version", "bases"),
    [("GLIBC_2.38", ("debian-13",)), ("OPENSSL_3.4.0", ("debian-13",)), ("OPENSSL_3.0.9", ("debian-12", "debian-13")),
     ("GLIBC_9.9", ()), ("OPENSSL_1_1_1", ())],
)  # fmt: skip
def test_the_bases_that_have_a_symbol_version(version: str, bases: tuple[str, ...]) -> None:
    assert sonames.bases_for_version(version) == bases


# --- musl ------------------------------------------------------------------------------------------------------

MUSL: dict[str, bytes | str] = {
    "lib/ld-musl-x86_64.so.1": make_elf(soname="libc.so"),
    "lib/libc.musl-x86_64.so.1": "ld-musl-x86_64.so.1",
    "usr/lib/libz.so.1": make_elf("libc.musl-x86_64.so.1", soname="libz.so.1"),
}


def check_musl(tmp_path: Path, *contents: Mapping[str, bytes | str]) -> tuple[Problem, ...]:
    made = [
        Contents(tmp_path / str(number), write_tree(tmp_path / str(number), content))
        for number, content in enumerate((MUSL, *contents))
    ]
    return check_layers(made, "alpine-3.20")


def test_musl_is_every_part_of_the_c_library_and_has_no_versions(tmp_path: Path) -> None:
    module = make_elf("libc.so", "libm.so.6", "libpthread.so.0", "libz.so.1", wants=(("libz.so.1", "ZLIB_9"),))
    assert check_musl(tmp_path, env({"x/_x.cpython-312-x86_64-linux-musl.so": module})) == ()


def test_where_musl_looks(tmp_path: Path) -> None:
    tool = make_elf("libpq.so.5", interpreter="/lib/ld-musl-x86_64.so.1")
    elsewhere: dict[str, bytes | str] = {"usr/bin/tool": tool, "opt/lib/libpq.so.5": make_elf(soname="libpq.so.5")}
    (problem,) = check_musl(tmp_path / "1", elsewhere)
    assert (problem.missing, problem.capability, problem.fatal) == ("libpq.so.5", "postgres", True)
    # Debian's directories are not musl's.
    (problem,) = check_musl(tmp_path / "2", elsewhere, {f"{LIB}/libpq.so.5": make_elf(soname="libpq.so.5")})
    path = {"etc/ld-musl-x86_64.path": b"/lib:/opt/lib\n/usr/lib\n"}
    assert check_musl(tmp_path / "3", elsewhere, path) == ()
    # The file takes the place of the usual directories.
    (problem,) = check_musl(
        tmp_path / "4",
        elsewhere | {"usr/bin/zip": make_elf("libz.so.1")},
        {**path, "etc/ld-musl-x86_64.path": b"/opt/lib"},
    )
    assert problem.missing == "libz.so.1"


def test_apks_database_says_whose_file_it_is(tmp_path: Path) -> None:
    database = b"P:other\nV:1\n\nP:tools\nV:1\nF:usr/bin\nR:tool\nF:usr/lib\nR:libx.so\n\n"
    (problem,) = check_musl(tmp_path, {"usr/bin/tool": make_elf("libpq.so.5"), "lib/apk/db/installed": database})
    assert problem.package == "tools"


def test_the_libraries_of_a_musl_base(tmp_path: Path) -> None:
    found = base_sonames([Contents(tmp_path, write_tree(tmp_path, MUSL))], "x86_64")
    assert found == {"libc.so", "libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1", "libz.so.1"}
