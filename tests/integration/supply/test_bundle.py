"""Bundles: from one machine to another that has no network at all, and not when somebody touched them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.sandbox.conftest import lock
from tests.integration.sandbox.native import make_sdist
from tests.support.needs import need
from tests.support.px import PX, run_px

pytestmark = pytest.mark.network

MANIFEST = """\
[project]
name = "carried"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["answer42", "iniconfig"]

[tool.uv.sources]
answer42 = {{ path = "sdists/{sdist}" }}

[tool.px.sandbox.capabilities]
postgres = true

[tool.px]
test = ["python", "-m", "unittest", "-q"]
"""
TEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        import answer42, iniconfig\n"


@pytest.fixture(scope="module")
def source(kept: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed project with a wheel, an sdist that has compiled parts, and a capability, synced."""
    root = tmp_path_factory.mktemp("source") / "carried"
    root.mkdir()
    sdist = make_sdist(root / "sdists", "answer42")
    (root / "pyproject.toml").write_text(MANIFEST.format(sdist=sdist.name))
    (root / "test_it.py").write_text(TEST)
    lock(root)
    at = {"GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z", "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z"}
    for command in ("init -q", "add -A", "-c user.name=t -c user.email=t@t commit -qm x"):
        subprocess.run(["git", *command.split()], cwd=root, check=True, env={**os.environ, **at})
    run_px("sync", "--sandbox", cwd=root, PX_HOME=str(kept.root), timeout=900)
    return root


@pytest.fixture(scope="module")
def bundle(source: Path, kept: Home, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path = tmp_path_factory.mktemp("bundle") / "carried.bundle"
    wheels = path.with_name("wheels")
    wheels.mkdir()
    (wheels / "px_sandbox-9-py3-none-any.whl").write_bytes(b"a wheel")
    done = run_px("bundle", "export", path, "--files", wheels, "--json", cwd=source, PX_HOME=str(kept.root))
    details: dict[str, Any] = json.loads(done.stdout)["details"]
    return path, details


@pytest.fixture
def elsewhere(source: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project on another machine, where px has nothing."""
    monkeypatch.setenv("PX_HOME", str(home.root))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return Path(shutil.copytree(source, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".px")))


def digest(project: Path, home: Home) -> str:
    done = run_px("pack", "image", "--json", cwd=project, PX_HOME=str(home.root))
    return str(json.loads(done.stdout)["details"]["digest"])


def without_network(script: str, cwd: Path) -> str:
    """Run a shell script in a network namespace that is empty, loopback included."""
    command = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-ec", script]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_machine_without_a_network(
    bundle: tuple[Path, dict[str, Any]], source: Path, kept: Home, elsewhere: Path, home: Home, tmp_path: Path
) -> None:
    path, details = bundle
    script = f"""
        {PX} bundle import {path} --digest {details["digest"]} --files {tmp_path / "wheels"}
        {PX} sync --sandbox --offline --frozen
        {PX} run --sandbox --offline python -c 'import answer42; print("answer", answer42.answer)'
        {PX} test --sandbox --offline
        {PX} pack image --offline --json > {tmp_path / "packed.json"}
        {PX} bundle export --offline {tmp_path / "again.bundle"} --files {tmp_path / "wheels"}
    """
    said = without_network(script, elsewhere)
    assert "answer 42" in said
    assert "Building" not in said
    packed = json.loads((tmp_path / "packed.json").read_text())["details"]["digest"]
    assert packed == digest(source, kept)
    assert (tmp_path / "again.bundle").read_bytes() == path.read_bytes()
    remove_tree(home.root)


def test_a_second_export_is_the_same(
    bundle: tuple[Path, dict[str, Any]], source: Path, kept: Home, tmp_path: Path
) -> None:
    path, _ = bundle
    wheels = path.with_name("wheels")
    shutil.rmtree(kept.sandbox / "blobs")  # nothing is left of the first
    run_px("bundle", "export", tmp_path / "b", "--files", wheels, cwd=source, PX_HOME=str(kept.root), TZ="Asia/Tokyo")
    assert (tmp_path / "b").read_bytes() == path.read_bytes()


def changed(path: Path, target: Path, what: str) -> Path:
    """A copy of a bundle in which somebody changed a blob, or cut something off."""
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        largest = max(tar.getmembers(), key=lambda m: m.size)
        index = next(m for m in tar.getmembers() if m.name == "index.json")
    if what == "blob":
        content[largest.offset_data + largest.size // 2] ^= 1
    elif what == "index":
        at = content.index(b'"sha256:', index.offset_data) + 10
        content[at] = ord("0") if content[at] != ord("0") else ord("1")
    else:
        del content[largest.offset_data + largest.size // 2 :]
    target.write_bytes(content)
    return target


@pytest.mark.parametrize("what", ["blob", "index", "cut"])
def test_a_bundle_that_was_tampered_with(
    what: str, bundle: tuple[Path, dict[str, Any]], elsewhere: Path, home: Home, tmp_path: Path
) -> None:
    done = run_px("bundle", "import", changed(bundle[0], tmp_path / "bad", what), cwd=elsewhere, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith("PX952")
    assert run_px("store", "verify", "--offline", cwd=elsewhere).returncode == 0
    remove_tree(home.root)


def test_another_bundle_than_the_one_that_was_meant(bundle: tuple[Path, dict[str, Any]], elsewhere: Path) -> None:
    done = run_px("bundle", "import", bundle[0], "--digest", "sha256:" + "0" * 64, cwd=elsewhere, check=False)
    assert done.stderr.startswith("PX952")
    image = run_px("bundle", "import", sys.executable, cwd=elsewhere, check=False)
    assert image.stderr.startswith("PX952")


def test_skopeo_carries_it(bundle: tuple[Path, dict[str, Any]], elsewhere: Path, home: Home, tmp_path: Path) -> None:
    need("skopeo")
    copied = tmp_path / "layout"
    command = ["skopeo", "copy", "--insecure-policy", f"oci-archive:{bundle[0]}", f"oci:{copied}:latest"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    taken = run_px("bundle", "import", copied, "--digest", bundle[1]["digest"], cwd=elsewhere)
    assert bundle[1]["digest"] in taken.stdout
    remove_tree(home.root)
