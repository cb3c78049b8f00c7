"""Sandboxes with a Python that their base does not have: built, run, bound in the ids; and what is said if not."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from px.home import Home
from px.platforms import host_architecture
from px.project.context import Context
from px.sandbox.layers import pythons
from px.sandbox.layers.pythons import Pin
from px.sandbox.layers.runtime import PREFIX, ensure_python
from px.store.objects import Store, tree_spec
from tests.integration.sandbox_runtime import standalone
from tests.integration.sandbox_runtime.standalone import MINOR, Standalone
from tests.support.index import Index
from tests.support.interpreters import interpreters
from tests.support.needs import need
from tests.support.px import run_px

LOOK = """
import importlib.util, json, os, sqlite3, ssl, sys, sysconfig, ctypes, lzma, leaf
print(json.dumps({
    "version": sys.version.split()[0],
    "prefix": [sys.prefix, sys.base_prefix],
    "executable": os.path.realpath(sys.executable),
    "include": sysconfig.get_path("include"),
    "cc": sysconfig.get_config_var("CC").split()[0],
    "compiled": [os.path.exists(m.__spec__.cached) for m in (json, leaf)],
    "sqlite": sqlite3.connect(":memory:").execute("select 6 * 7").fetchone(),
    "certificates": len(ssl.create_default_context().get_ca_certs()) > 0 or bool(ssl.get_default_verify_paths().capath),
}))
"""


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Standalone:
    return standalone.build(tmp_path_factory.mktemp("standalone"))


@pytest.fixture
def listed(build: Standalone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Standalone:
    """The archive as all that uv can download; what uv takes from there for itself stays in the test's directory."""
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv-pythons"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", build.listing.as_uri())
    return build


@pytest.fixture
def px_home(warm_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    need("bubblewrap")
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    return warm_home


def context_of(home: Path, *, offline: bool = False) -> Context:
    """A project beside this px home, with nothing in it that asks for any Python."""
    (home.parent / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\n')
    return Context(Store(Home(home), offline=offline), home.parent)


def choice(context: Context) -> pythons.Choice:
    return pythons.choose(context, host_architecture(), lambda v: v.startswith(f"{MINOR}."), None)


def test_a_project_runs_on_a_python_that_its_base_lacks(
    app: Path, index: Index, listed: Standalone, px_home: Home
) -> None:
    (app / ".python-version").write_text(f"{MINOR}\n")
    run_px("sync", "--sandbox", cwd=app)
    code = "import sys, ssl, sqlite3; print(sys.version)"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=app).stdout.startswith(listed.version)
    seen = json.loads(run_px("run", "--sandbox", "python", "-c", LOOK, cwd=app).stdout)
    assert seen["version"] == listed.version
    assert seen["prefix"] == ["/opt/px/env", f"/{PREFIX}"]
    assert seen["executable"] == f"/{PREFIX}/bin/python{MINOR}"
    assert seen["include"] == f"/{PREFIX}/include/python{MINOR}"
    assert seen["cc"] == "cc"
    assert seen["compiled"] == [True, True]
    assert seen["sqlite"] == [42]
    assert run_px("run", "--sandbox", "hello", "you", cwd=app, check=False).returncode == 3
    explained = json.loads(run_px("--json", "sandbox", "explain", cwd=app).stdout)["details"]
    assert [layer["what"] for layer in explained["layers"]][-3:] == ["runtime", "runtime bytecode", "env"]
    other = _with_other_python(app)
    assert other["profile_oid"] != explained["profile_oid"]
    assert other["base_os_oid"] == explained["base_os_oid"]


def _with_other_python(app: Path) -> dict[str, object]:
    (app / ".python-version").write_text("3.11\n")
    found: dict[str, object] = json.loads(run_px("--json", "sandbox", "explain", cwd=app).stdout)["details"]
    return found


def test_the_tree_follows_from_the_archive_alone(listed: Standalone, tmp_path: Path) -> None:
    """Two homes, two umasks, an archive from uv's cache and one from its place: one oid, and no trace of here."""
    oids = []
    for name, mask in (("one", 0o022), ("a longer name", 0o077)):
        before = os.umask(mask)
        try:
            context = context_of(tmp_path / name)
            python = ensure_python(context, choice(context), "glibc-2.36")
        finally:
            os.umask(before)
        assert python.layer is not None
        oids.append(python.layer.oid)
    assert oids[0] == oids[1]
    store = context.store
    paths = [str(entry[1]) for entry in tree_spec(store.payload("layer", oids[0]))]
    unwanted = [p for p in paths if "__pycache__" in p or p.endswith((".pyc", ".a")) or "/site-packages" in p]
    assert not unwanted
    assert f"{PREFIX}/lib/python{MINOR}/test/__init__.py" not in paths
    texts = [store.tree("layer", oids[0]) / p for p in paths if "_sysconfigdata" in p or p.endswith("/Makefile")]
    assert texts
    for text in texts:
        content = text.read_text()
        assert str(tmp_path) not in content
        assert listed.prefix not in content
        assert f"/{PREFIX}" in content


def test_a_kept_archive_serves_without_a_network(
    listed: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_CACHE_DIR", str(tmp_path / "kept"))
    context = context_of(tmp_path / "home")
    chosen = choice(context)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = pythons.fetch(context, chosen, tmp_path / "first")
    assert first.parent == tmp_path / "kept"
    assert pythons.fetch(context_of(tmp_path / "home", offline=True), chosen, tmp_path / "second") == first


def mirrored(build: Standalone, mirror: Path, sha256: str) -> dict[str, Pin]:
    """A mirror with the archive in it, and pins that name that build."""
    pin = Pin(build.version, "20240101", {host_architecture(): sha256})
    (mirror / pin.build).mkdir(parents=True)
    (mirror / pin.build / build.archive.name).hardlink_to(build.archive)
    return {build.version: pin}


def test_a_pinned_build_comes_from_the_mirror_although_uv_knows_another(
    build: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is uv's own, which has this release in some other build: what px pins is fetched all the same."""
    digest = hashlib.sha256(build.archive.read_bytes()).hexdigest()
    pinned = mirrored(build, tmp_path / "mirror", digest)
    monkeypatch.setattr(pythons, "pins", lambda: pinned)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", (tmp_path / "mirror").as_uri())
    context = context_of(tmp_path / "home")
    chosen = choice(context)
    assert chosen.identity == [digest]
    assert pythons.offers(context, host_architecture())[build.version].url != chosen.url
    archive = pythons.fetch(context, chosen, tmp_path)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest


def test_a_build_that_is_not_the_pinned_one_is_refused(
    build: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = mirrored(build, tmp_path / "mirror", "0" * 64)
    monkeypatch.setattr(pythons, "pins", lambda: pinned)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", (tmp_path / "mirror").as_uri())
    context = context_of(tmp_path / "home")
    with pytest.raises(pythons.UnavailableError, match="Hash mismatch"):
        pythons.fetch(context, choice(context), tmp_path)


def test_a_changed_archive_is_refused(listed: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / listed.archive.name
    damaged.write_bytes(listed.archive.read_bytes()[:-1] + b"\1")
    rows = json.loads(listed.listing.read_text())
    for row in rows.values():
        row["url"] = damaged.as_uri()
    (tmp_path / "downloads.json").write_text(json.dumps(rows))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", (tmp_path / "downloads.json").as_uri())
    context = context_of(tmp_path / "home")
    with pytest.raises(pythons.UnavailableError):
        ensure_python(context, choice(context), "glibc-2.36")
    assert not list(context.store.objects())


@pytest.fixture
def has_python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """uv locks a project only with a Python that the project accepts."""
    need("CPython 3.13")
    found = Path(interpreters("3.13")[0]).parent
    monkeypatch.setenv("PATH", f"{found}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("has_python_3_13")
def test_no_network_says_what_else_would_do(
    app: Path, index: Index, px_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection refused, as on a machine that reaches package indexes only: the pinned build is named."""
    (app / ".python-version").write_text("3.13\n")
    run_px("update", cwd=app)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    done = run_px("run", "--sandbox", "python", "-V", cwd=app, check=False)
    assert done.returncode == 125
    assert done.stderr.count("PX900") == 1
    assert "The base has Python 3.11" in done.stderr
    assert "uv could not provide CPython 3.13." in done.stderr
    assert 'base = "debian-13"' in done.stderr
    assert "uv python install 3.13." in done.stderr


@pytest.mark.usefixtures("has_python_3_13")
def test_a_base_that_has_the_python_needs_no_layer(app: Path, index: Index, px_home: Home) -> None:
    (app / ".python-version").write_text("3.13\n")
    with (app / "pyproject.toml").open("a") as f:
        f.write('[tool.px.sandbox]\nbase = "debian-13"\n')
    run_px("sync", "--sandbox", cwd=app)
    code = "import sys, ssl, sqlite3; print(sys.version_info[:2], sys.base_prefix)"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=app).stdout.strip() == "(3, 13) /usr"
