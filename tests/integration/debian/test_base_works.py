"""A base is a working system: its interpreter, TLS, its libraries, its shell; and nothing that it must not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from px.debian.image import Below, View
from px.sandbox.layers.system import ensure_system_layer
from px.sandbox.needs.capabilities import table
from px.sandbox.needs.linkcheck import check_layers
from px.store.objects import Store, tree_spec
from tests.support.rootfs import run_in
from tests.support.tls import serve_https

if TYPE_CHECKING:
    from pathlib import Path

    from px.sandbox.layers.base import Base
    from px.sandbox.layers.layer import Layer

MODULES = "bz2, ctypes, ctypes.util, curses, dbm, decimal, hashlib, lzma, readline, sqlite3, ssl, uuid, zlib, zoneinfo"
TOOLS = (
    "awk bash cat cp cut date diff env find grep gzip head hostname id kill ls mkdir mktemp mv ps rm sed sh sort stat "
)
TOOLS += "tar tr uname wc which xargs"
ABSENT = "apt apt-get dpkg perl gcc cc cpp ld as make pip pip3"


def python(
    base: Base, code: str, *more: Layer, network: bool = False, bind: list[tuple[Path, str]] | None = None
) -> str:
    layers = [base.tree, *(layer.tree for layer in more)]
    done = run_in(layers, ["python3", "-c", code], network=network, bind=bind or [])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_interpreter_and_its_modules(base: Base) -> None:
    out = python(base, f"import sys, {MODULES}; print(sys.version.split()[0], sys.prefix)")
    assert out == f"{base.python.full} /usr"


def test_modules_do_what_they_are_for(base: Base) -> None:
    code = """
import ctypes, ctypes.util, datetime, lzma, mimetypes, pwd, sqlite3, zoneinfo
assert sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
assert lzma.decompress(lzma.compress(b"x" * 999)) == b"x" * 999
libc = ctypes.CDLL(ctypes.util.find_library("c"))
assert libc.getpid() > 0
assert ctypes.util.find_library("ssl") and ctypes.util.find_library("stdc++")
assert datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset().seconds == 7200
assert pwd.getpwuid(1000).pw_name == "px"
mimetypes.init()
assert "/etc/mime.types" in mimetypes.knownfiles and mimetypes.guess_type("x.epub")[0] == "application/epub+zip"
print("ok")
"""
    assert python(base, code) == "ok"


def test_certificates(base: Base) -> None:
    out = python(
        base,
        "import ssl; print(len(ssl.create_default_context().get_ca_certs()), ssl.get_default_verify_paths().cafile)",
    )
    count, cafile = out.split()
    assert int(count) == 0 or int(count) > 100  # a directory is looked into only when a certificate is needed
    assert cafile == "None"


def test_a_tls_handshake(base: Base, tmp_path: Path) -> None:
    with serve_https(tmp_path) as server:
        client = (
            "import ssl, urllib.request;"
            f"c = ssl.create_default_context(cafile='/tmp/ca.pem');"
            f"print(urllib.request.urlopen('https://localhost:{server.port}/', context=c).read().decode())"
        )
        assert python(base, client, network=True, bind=[(server.certificate, "/tmp/ca.pem")]) == "hello over TLS"
        refused = run_in(
            [base.tree],
            ["python3", "-c", f"import urllib.request; urllib.request.urlopen('https://localhost:{server.port}/')"],
            network=True,
        )
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr


def test_every_program_and_library_finds_what_it_links_to(base: Base, warm_store: Store) -> None:
    spec = tree_spec(warm_store.payload("sandbox-base", base.oid))
    files = [str(e[1]) for e in spec if e[0] == "f" and (int(e[2]) & 0o111 or ".so" in str(e[1]))]
    elf = [path for path in files if (base.tree / path).read_bytes()[:4] == b"\x7fELF"]
    assert len(elf) > 200
    done = run_in([base.tree], ["sh", "-c", 'for f; do echo "$f:"; ldd "$f" 2>&1; done', "sh", *(f"/{p}" for p in elf)])
    missing = [line for line in done.stdout.splitlines() if "not found" in line]
    assert not missing
    assert done.stdout.count("=>") > 500


def test_a_shell_and_the_usual_utilities(base: Base) -> None:
    done = run_in([base.tree], ["sh", "-c", f"for t in {TOOLS}; do command -v $t >/dev/null || echo missing $t; done"])
    assert done.stdout == ""
    done = run_in(
        [base.tree], ["bash", "-c", "echo a b | awk '{print $2}' | sed s/b/c/; id -un; find /etc -name passwd"]
    )
    assert done.stdout == "c\npx\n/etc/passwd\n"


def test_no_compiler_no_perl_no_package_manager(base: Base) -> None:
    done = run_in([base.tree], ["sh", "-c", f"for t in {ABSENT}; do command -v $t; done; true"])
    assert done.stdout == ""


def test_no_link_leads_nowhere(base: Base, warm_store: Store) -> None:
    spec = tree_spec(warm_store.payload("sandbox-base", base.oid))
    view = View([Below(base.tree, spec)])
    links = [(str(e[1]), str(e[2])) for e in spec if e[0] == "l"]
    dangling = [f"{path} -> {target}" for path, target in links if view.entry(view.resolve(path)) is None]
    # What the kernel makes, and documentation, are not there until somebody mounts or installs them.
    assert [d for d in dangling if not re.search(r"proc/|share/(man|doc)", d)] == []


def test_the_bytecode_is_used_and_saves_compiling(base: Base, bytecode: Layer) -> None:
    code = "import argparse, json; print(argparse.__cached__, json.decoder.__cached__)"
    tag = f"cpython-{base.python.major}{base.python.minor}"
    assert python(base, code, bytecode).count(tag) == 2
    trace = run_in([base.tree, bytecode.tree], ["python3", "-v", "-c", "import argparse"]).stderr
    assert re.search(rf"argparse\.{tag}\.pyc matches|code object from '/usr/lib/[^']*argparse\.{tag}\.pyc'", trace)


def test_the_bytecode_is_what_the_bases_own_compiler_makes(base: Base, bytecode: Layer) -> None:
    code = """
import glob, importlib.util, marshal, py_compile, random
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
paths = glob.glob("/usr/lib/python3.*/*.py") + glob.glob("/usr/lib/python3.*/json/*.py")
random.shuffle(paths)
for path in paths:
    py_compile.compile(path, cfile="/tmp/x.pyc", optimize=0, invalidation_mode=unchecked)
    made = open("/tmp/x.pyc", "rb").read()
    shipped = open(importlib.util.cache_from_source(path), "rb").read()
    assert made[:16] == shipped[:16], path
    assert marshal.dumps(marshal.loads(made[16:]), 2) == shipped[16:], path
print("ok")
"""
    assert python(base, code, bytecode) == "ok"


@pytest.mark.parametrize("capability", ["postgres"])
def test_a_capability_brings_its_library(base: Base, capability: str, warm_store: Store) -> None:
    layer = ensure_system_layer(warm_store, base, [capability])
    assert layer is not None
    code = "import ctypes, ctypes.util; n = ctypes.util.find_library('pq'); print(n, ctypes.CDLL(n).PQlibVersion() > 0)"
    assert python(base, code, layer) == "libpq.so.5 True"
    done = run_in([base.tree], ["python3", "-c", "import ctypes; ctypes.CDLL('libpq.so.5')"])
    assert "cannot open shared object file" in done.stderr


KEYSTORE = "keytool -list -cacerts -storepass changeit | grep -c trustedCertEntry"
GTK = "import ctypes; print(*(ctypes.CDLL(n).gtk_get_major_version() for n in ('libgtk-3.so.0', 'libgtk-4.so.1')[:1]))"


@pytest.mark.parametrize(
    ("capability", "command", "said"),
    [
        ("less", "printf 'one\\n' | pager && less --version", "less "),
        ("http-tools", "curl --version && wget --version", "GNU Wget"),
        ("binutils", "objdump --version && strip --version", "GNU strip"),
        ("gettext", "msgfmt --version && xgettext --version", "GNU gettext-tools"),
        ("sql-tools", "psql --version && pg_dump --version && mysqldump --version && mysql --version", "MariaDB"),
        ("sql-tools", "echo 'select 6*7;' | sqlite3", "42"),
        ("venv", "python3 -m venv /tmp/v && /tmp/v/bin/pip --version", "pip "),
        ("xkb", "python3 -c \"import ctypes; print(ctypes.CDLL('libxkbfile.so.1'))\"", "libxkbfile.so.1"),
        pytest.param("java", f"java -version 2>&1 && {KEYSTORE}", "OpenJDK", marks=pytest.mark.slow),
        pytest.param("gtk", f'python3 -c "{GTK}"', "3", marks=pytest.mark.slow),
        pytest.param(
            "wkhtmltopdf", "echo '<p>x' | wkhtmltopdf -q - /tmp/x.pdf; head -c 4 /tmp/x.pdf", "%PDF",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_a_capability_brings_its_program(
    base: Base, capability: str, command: str, said: str, warm_store: Store
) -> None:
    if base.name not in table()[capability].packages:
        return
    layer = ensure_system_layer(warm_store, base, [capability])
    assert layer is not None
    done = run_in([base.tree, layer.tree], ["sh", "-c", command])
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    if capability == "java":
        assert int(done.stdout.split()[-1]) > 100
    problems = check_layers([base.contents(warm_store), layer.contents(warm_store)], base.name, warm_store.home)
    assert [p for p in problems if p.fatal] == []
