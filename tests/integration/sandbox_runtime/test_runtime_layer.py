"""Sandboxes with a Python that their base does not have: built, run, bound in the ids; and what is said if not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from px.home import Home
from px.sandbox import pythons
from px.sandbox.bases import host_architecture
from px.sandbox.pythonpins import Pin
from px.sandbox.runtimelayer import PREFIX, ensure_python
from px.store.objects import Store, tree_spec
from tests.integration.sandbox_runtime import standalone
from tests.integration.sandbox_runtime.standalone import MINOR, Standalone
from tests.support.index import Index
from tests.support.px import UV, run_px

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")

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
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    return warm_home


def choice(directory: Path) -> pythons.Choice:
    return pythons.choose(directory, host_architecture(), lambda v: v.startswith(f"{MINOR}."), None)


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
            store = Store(Home(tmp_path / name))
            python = ensure_python(store, choice(tmp_path), "glibc-2.36", tmp_path, offline=False)
        finally:
            os.umask(before)
        assert python.layer is not None
        oids.append(python.layer.oid)
    assert oids[0] == oids[1]
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
    chosen = choice(tmp_path)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = pythons.fetch(chosen, tmp_path, tmp_path / "first", offline=False)
    assert first.parent == tmp_path / "kept"
    assert pythons.fetch(chosen, tmp_path, tmp_path / "second", offline=True) == first


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
    chosen = choice(tmp_path)
    assert chosen.identity == [digest]
    assert pythons.offers(tmp_path, host_architecture())[build.version].url != chosen.url
    archive = pythons.fetch(chosen, tmp_path, tmp_path, offline=False)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest


def test_a_build_that_is_not_the_pinned_one_is_refused(
    build: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = mirrored(build, tmp_path / "mirror", "0" * 64)
    monkeypatch.setattr(pythons, "pins", lambda: pinned)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", (tmp_path / "mirror").as_uri())
    with pytest.raises(pythons.UnavailableError, match="Hash mismatch"):
        pythons.fetch(choice(tmp_path), tmp_path, tmp_path, offline=False)


def test_a_changed_archive_is_refused(listed: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / listed.archive.name
    damaged.write_bytes(listed.archive.read_bytes()[:-1] + b"\1")
    rows = json.loads(listed.listing.read_text())
    for row in rows.values():
        row["url"] = damaged.as_uri()
    (tmp_path / "downloads.json").write_text(json.dumps(rows))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", (tmp_path / "downloads.json").as_uri())
    store = Store(Home(tmp_path / "home"))
    with pytest.raises(pythons.UnavailableError):
        ensure_python(store, choice(tmp_path), "glibc-2.36", tmp_path, offline=False)
    assert not list(store.objects())


def require_python(version: str) -> None:
    """uv locks a project only with a Python that the project accepts; none can be downloaded on test machines."""
    done = subprocess.run([UV, "python", "find", "--no-python-downloads", version], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"there is no Python {version} on this machine to lock the project with")


def test_no_network_says_what_else_would_do(
    app: Path, index: Index, px_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection refused, as on a machine that reaches package indexes only: the pinned build is named."""
    require_python("3.13")
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


def test_a_base_that_has_the_python_needs_no_layer(app: Path, index: Index, px_home: Home) -> None:
    require_python("3.13")
    (app / ".python-version").write_text("3.13\n")
    with (app / "pyproject.toml").open("a") as f:
        f.write('[tool.px.sandbox]\nbase = "debian-13"\n')
    run_px("sync", "--sandbox", cwd=app)
    code = "import sys, ssl, sqlite3; print(sys.version_info[:2], sys.base_prefix)"
    assert run_px("run", "--sandbox", "python", "-c", code, cwd=app).stdout.strip() == "(3, 13) /usr"
