"""Real error messages, as they were printed, and the capability that each asks for."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from px.env import complaints
from px.sandbox.build.failures import build_failure
from px.sandbox.build.work import Work
from px.sandbox.needs.capabilities import table
from px.sandbox.needs.patterns import match, missing_browser

MESSAGES = [
    (("/usr/bin/psql: error while loading shared libraries: libpq.so.5: cannot open shared object file: "
     "No such file or directory"), "postgres", "libpq.so.5"),
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "opengl", "libGL.so.1"),
    ("Error loading shared library libxml2.so.2: No such file or directory (needed by /x/etree.so)", "xml",
     "libxml2.so.2"),
    (("OSError: cannot load library 'gobject-2.0-0': gobject-2.0-0: cannot open shared object file: No such file or "
     "directory.  Additionally, ctypes.util.find_library() did not manage to locate a library called 'gobject-2.0-0'"),
     "glib", "gobject-2.0-0"),
    ("OSError: cannot load library 'libpango-1.0.so.0': error 0x7e", "pango", "libpango-1.0.so.0"),
    ('OSError: no library called "cairo-2" was found', "pango", "cairo-2"),
    ("ImportError: failed to find libmagic.  Check your installation", "magic", "libmagic"),
    ("ImportError: Unable to find zbar shared library", "barcode", "zbar"),
    ("usb.core.NoBackendError: No backend available", "usb", "No backend"),
    ("OSError: PortAudio library not found", "audio", "PortAudio"),
    ("ImportError: libpq library not found", "postgres", "libpq"),
    ("ImportError: The 'enchant' C library was not found and maybe needs to be installed.", "spelling", "enchant"),
    ("./psycopg/psycopg.h:36:10: fatal error: libpq-fe.h: No such file or directory", "postgres", "libpq-fe.h"),
    ("src/_imaging.c:12:10: fatal error: jpeglib.h: No such file or directory", "imagecodecs", "jpeglib.h"),
    ("x.c:1:10: fatal error: zlib.h: No such file or directory", "compression", "zlib.h"),
    ("x.c:1:10: fatal error: 'openssl/ssl.h' file not found", "openssl", "openssl/ssl.h"),
    ("Modules/constants.h:7:10: fatal error: lber.h: No such file or directory", "ldap", "lber.h"),
    ("acl.c:27:10: fatal error: sys/acl.h: No such file or directory", "acl", "sys/acl.h"),
    ("c/_cffi_backend.c:15:10: fatal error: ffi.h: No such file or directory", "ffi", "ffi.h"),
    ("/usr/bin/ld: cannot find -lxmlsec1: No such file or directory", "xmlsec", "xmlsec1"),
    ("/usr/bin/ld: cannot find -lmysqlclient", "mysql", "mysqlclient"),
    ("Package libffi was not found in the pkg-config search path.", "ffi", "libffi"),
    ("Package 'cairo', required by 'virtual:world', not found", "pango", "cairo"),
    ("No package 'libxml-2.0' found", "xml", "libxml-2.0"),
    ('../meson.build:31:9: ERROR: Dependency "openblas" not found, tried pkgconfig', "blas", "openblas"),
    ("  No CMAKE_Fortran_COMPILER could be found.", "fortran", "CMAKE_Fortran_COMPILER"),
    ("../meson.build:1:0: ERROR: Unknown compiler(s): [['gfortran'], ['flang']]", "fortran", "gfortran"),
    ("Exception: Can not find valid pkg-config name.", "mysql", "pkg-config name"),
    ("Error: pg_config executable not found.", "postgres", "pg_config"),
    ("/bin/sh: 1: mysql_config: not found", "mysql", "mysql_config"),
    ("bash: line 1: gdal-config: command not found", "geo", "gdal-config"),
    ("OSError: mysql_config not found", "mysql", "mysql_config"),
    ("__main__.ConfigurationError: Could not run curl-config: [Errno 2] No such file or directory: 'curl-config'",
     "curl", "curl-config"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'", "video", "ffmpeg"),
    (("graphviz.backend.execute.ExecutableNotFound: failed to execute PosixPath('dot'), make sure the Graphviz "
     "executables are on your systems' PATH"), "graphviz", "dot"),
    ("pytesseract.pytesseract.TesseractNotFoundError: tesseract is not installed or it's not in your PATH.", "ocr",
     "tesseract"),
    ("pdf2image.exceptions.PDFInfoNotInstalledError: Unable to get page count. Is poppler installed and in PATH?",
     "pdf", "poppler"),
    ("ImportError: Bad git executable.", "git", "git"),
    ("bash: line 1: less: command not found", "less", "less"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'curl'", "http-tools", "curl"),
    ("CommandError: You appear not to have the 'psql' program installed or on your path.", "sql-tools", "psql"),
    ("CommandError: Can't find msguniq. Make sure you have GNU gettext tools 0.19 or newer installed.", "gettext",
     "msguniq"),
    ('ImproperlyConfigured: Could not find the GDAL library (tried "gdal", "GDAL").', "geo", "GDAL"),
    ("ERROR: On Linux, objdump is required. It is typically provided by the 'binutils' package installable via your",
     "binutils", "objdump"),
    ("OSError: No wkhtmltopdf executable found: \"b''\"", "wkhtmltopdf", "wkhtmltopdf"),
    ("tabula.errors.JavaNotFoundError: `java` command is not found from this Python process.", "java", "java"),
    ("jpype._jvmfinder.JVMNotFoundException: No JVM shared library file (libjvm.so) found.", "java",
     "No JVM shared library file"),
    ("pyspark.errors.exceptions.base.PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited", "java",
     "JAVA_GATEWAY_EXITED"),
    ("ImportError: libxkbfile.so.1: cannot open shared object file: No such file or directory", "xkb",
     "libxkbfile.so.1"),
    ("ImportError: libgtk-3.so.0: cannot open shared object file: No such file or directory", "gtk", "libgtk-3.so.0"),
    ("ModuleNotFoundError: No module named '_tkinter'", "tk", "_tkinter"),
    ("The virtual environment was not created successfully because ensurepip is not", "venv", "ensurepip"),
    ("ModuleNotFoundError: No module named 'tkinter'", "tk", "tkinter"),
    ("The headers or library files could not be found for jpeg,", "imagecodecs", "jpeg"),
    ("Error: Please make sure the libxml2 and libxslt development packages are installed.", "xml", "libxml2"),
    ("\x1b[31mImportError: libcurl.so.4: cannot open shared object file: No such file or directory\x1b[0m", "curl",
     "libcurl.so.4"),
    ("ImportError: libldap-2.4.so.2: cannot open shared object file: No such file or directory", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "capability", "missing"), MESSAGES, ids=[m[0][:40] for m in MESSAGES])
def test_messages(text: str, capability: str, missing: str) -> None:
    found = match(f"Traceback:\n  before\n{text}\nafter\n", "debian-12")
    assert [(s.capability, s.missing) for s in found] == ([(capability, missing)] if capability else [])
    for suggestion in found:
        assert suggestion.line == re.sub(r"\x1b\[\d+m", "", text).strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AssertionError: expected postgres",
        "x.c:1:10: fatal error: mine/magic.h: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/git'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/app/dot'",
        "ImportError: libmine.so.1: cannot open shared object file: No such file or directory",
        "ModuleNotFoundError: No module named 'psycopg2'",
        "a" * 1_000_000,
    ],
    ids=lambda text: text[:30],
)
def test_other_failures_suggest_nothing(text: str) -> None:
    assert match(text, "debian-12") == ()


def test_each_capability_once_in_the_order_of_the_output() -> None:
    text = "\n".join(m[0] for m in (MESSAGES[1], MESSAGES[0], MESSAGES[0], MESSAGES[12]))
    assert [s.capability for s in match(text, "debian-12")] == ["opengl", "postgres"]


def test_the_version_of_a_library_depends_on_the_base() -> None:
    text = "ImportError: libavcodec.so.61: cannot open shared object file: No such file or directory"
    assert [s.capability for s in match(text, "debian-13")] == ["video"]


def test_every_pattern_has_a_name_and_is_used_by_a_message() -> None:
    unused = [
        p.regex.pattern
        for p in complaints._patterns()
        if "name" not in p.regex.groupindex or not any(p.regex.search(m[0]) for m in MESSAGES)
    ]
    # Pandoc's, pydub's and the loose "unable to find" forms share their tables with tested rows.
    assert len(unused) <= 3, unused


def test_every_capability_can_be_reached_by_some_message() -> None:
    reachable = {c for rows in complaints.table().values() if isinstance(rows, dict) for c in rows.values()}
    from px.sandbox.needs import sonames

    reachable |= {c for row in sonames.tables()["debian-12"].owners.values() for c in row}
    assert set(table()) - reachable == set()


RUST = "error: can't find Rust compiler\n\nThis package requires Rust >=1.74.0."
OLD = "a.c:3:2: error: #error librdkafka v2.16.0 or later is required\nerror: command 'gcc' failed\n"


def test_a_failed_build_in_rust_says_what_the_builder_lacks() -> None:
    error = build_failure("thing 1.0", RUST, "debian-12")
    assert error.code == "PX903"
    assert "no Rust compiler" in error.why[0]
    assert "wheel" in error.fix[0]
    assert not [line for line in error.fix if "disk" in line or "credentials" in line]


def test_a_project_in_rust_of_the_users_own() -> None:
    error = build_failure("thing", RUST, "debian-12", own=True)
    assert error.fix[0] == "Do without it, and have only what it depends on: [tool.uv] package = false"


def test_a_capability_that_the_build_had_is_no_remedy() -> None:
    log = "Package libavcodec was not found in the pkg-config search path"
    assert build_failure("av 1.0", log, "debian-12").code == "PX902"
    had = build_failure("av 1.0", log, "debian-12", frozenset({"video"}))
    assert (had.code, had.why[0]) == ("PX903", log)
    assert build_failure("kafka 1.0", OLD, "debian-12").why == (OLD.strip().replace("\n", "\n    "),)


def test_what_no_capability_brings_is_said() -> None:
    log = "configure: error:\nPackage 'gtk+-3.0', required by 'virtual:world', not found\n"
    assert build_failure("wx 1.0", log, "debian-12").why[0] == "px has no capability that brings gtk+-3.0."


@pytest.mark.parametrize(
    ("log", "tool", "requirement"),
    [
        ("./build_bundled.sh: 22: cmake: not found\n", "cmake", "cmake"),
        ("error: command 'swig' failed: No such file or directory\n", "swig", "swig"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'\n", "ninja", "ninja"),
        ("x\nModuleNotFoundError: No module named 'pkg_resources'\n", "pkg_resources", "setuptools<82"),
        ("ModuleNotFoundError: No module named 'skbuild.setuptools_wrap'\n", "skbuild", "scikit-build"),
    ],
)
def test_a_build_tool_that_was_not_required(log: str, tool: str, requirement: str) -> None:
    error = build_failure("box 1.0", log, "debian-12")
    assert error.why[0] == f"It uses {tool}, which its build requirements do not bring."
    assert error.fix[0] == f'Let its build have {tool}: [tool.uv.extra-build-dependencies] box = ["{requirement}"]'


def test_a_module_of_the_sources_own_is_none_to_require() -> None:
    log = "ModuleNotFoundError: No module named 'versioneer_of_my_own'"
    assert "version" in build_failure("box 1.0", log, "debian-12").fix[0]
    assert not [line for line in build_failure("box 1.0", log, "debian-12").fix if "extra-build" in line]


def test_a_header_of_the_sources_own_is_none_that_px_could_bring() -> None:
    log = 'a.c:2:10: fatal error: own.h: No such file or directory\n    2 | #include "own.h"\n'
    assert build_failure("x 1.0", log, "debian-12").why == (log.strip().replace("\n", "\n    "),)
    cython = build_failure("x 1.0", f"[1/1] Cythonizing a.pyx\n{log}", "debian-12")
    assert cython.why[0] == "px has no capability that brings own.h."


def test_a_package_that_the_project_wants_built_may_have_a_wheel() -> None:
    error = build_failure("thing 1.0", RUST, "debian-12", by_choice=True)
    assert error.fix[0] == "Let px take its wheel, if it has one: take thing out of [tool.uv].no-binary-package"


@pytest.mark.parametrize(
    "log",
    ["error: could not find git for clone of abseil-cpp-populate", "[Errno -3] Temporary failure in name resolution"],
)
def test_a_build_that_downloads_says_that_there_is_no_network(log: str) -> None:
    assert "has no network" in build_failure("x 1.0", log, "debian-12").why[0]


def test_playwrights_own_advice_is_set_right() -> None:
    text = (
        "playwright._impl._errors.Error: BrowserType.launch: Executable doesn't exist at "
        "/home/px/.cache/ms-playwright/firefox-1490/firefox/firefox\n║     playwright install ║"
    )
    error = missing_browser(text)
    assert error is not None
    assert error.fix == ("Once: px run --sandbox playwright install firefox",)
    assert missing_browser("Executable doesn't exist at /usr/bin/firefox") is None


def test_no_other_version_of_the_project_itself_is_advised() -> None:
    error = build_failure("app", "AttributeError: no attribute", "debian-12", own=True)
    assert error.fix[0].startswith("Correct what its build complains about")
    assert not any("wheel" in line for line in error.fix)


@pytest.mark.parametrize(
    "line",
    [
        "cc1plus: fatal error: error writing to /tmp/ccX1.s: No space left on device",
        "OSError: [Errno 28] No space left on device: '/tmp/tmpx/a.o'",
    ],
)
def test_a_full_memory_is_not_a_full_disk(line: str) -> None:
    """In a sandbox /tmp is in memory: no space that anybody frees on the disk would help."""
    error = build_failure("torch 2.0", f"building\n{line}\nfailed", "debian-12")
    assert error.code == "PX903"
    assert "torch 2.0 could not be built: its /tmp is full, which is in memory" in str(error)
    assert line in str(error)


def test_a_full_disk_is_not_the_packages_fault() -> None:
    error = build_failure("lxml 5.0", "cc1: fatal error: error writing to x.s: No space left on device", "debian-12")
    assert error.code == "PX810"
    work: Any = SimpleNamespace(artifact=SimpleNamespace(label="lxml 5.0"))
    said = "error: Failed to install: setuptools\n  cause: No space left on device (os error 28)"
    assert Work.uninstallable(work, said).code == "PX810"
    assert Work.uninstallable(work, "error: No solution found").code == "PX903"
