"""The shared cache: an empty store is filled from a registry; one that is down, slow or lies is not used."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pysequoia
import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.oci.registry_server import running_registry
from tests.integration.sandbox.homes import DOWNLOADS, clone
from tests.servers.registry import OciRegistry, running
from tests.support.needs import need
from tests.support.px import run_px

pytestmark = pytest.mark.network
PATH = "team/px-cache"
SAID = "is not used, px builds"


@pytest.fixture(autouse=True)
def _credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("PX_REGISTRY_TOKEN", "PX_REGISTRY_USERNAME", "PX_REGISTRY_PASSWORD", "REGISTRY_AUTH_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fresh(kept: Home, home: Home) -> Iterator[Home]:
    """A home that has the downloads and nothing else, so that px can build without a mirror."""
    yield clone(kept, home, DOWNLOADS)
    remove_tree(home.root)


def oids(home: Home) -> set[str]:
    """What was made or fetched."""
    return {path.name for kind in ("sandbox-base", "layer") for path in (home.objects / kind).glob("*")}


def sync(project: Path, home: Home, cache: str) -> str:
    return run_px("sync", "--sandbox", "--frozen", "-v", cwd=project, PX_HOME=str(home.root), PX_CACHE=cache).stderr


def sbx_id(project: Path, home: Home) -> str:
    done = run_px("sandbox", "explain", "--json", cwd=project, PX_HOME=str(home.root))
    return str(json.loads(done.stdout)["details"]["sbx_id"])


def test_an_empty_store_only_downloads(project: Path, kept: Home, home: Home, tmp_path: Path) -> None:
    need("docker-registry")
    run_px("sync", "--sandbox", cwd=project)
    with running_registry(tmp_path / "registry") as server:
        manifest = project / "pyproject.toml"
        manifest.write_text(manifest.read_text() + f'\n[tool.px]\ncache = "{server.host}/{PATH}"\n')
        run_px("sync", "--sandbox", cwd=project)
        first = json.loads(run_px("cache", "push", "--json", cwd=project).stdout)["details"]
        again = json.loads(run_px("cache", "push", "--json", cwd=project).stdout)["details"]
        assert first["sent"] > 0
        assert again["sent"] == 0
        # No mirror and no index can be reached: nothing listens on the discard port.
        nowhere = "http://127.0.0.1:9/"
        done = run_px(
            "sync", "--sandbox", "--frozen", cwd=project,
            PX_HOME=str(home.root), PX_DEBIAN_MIRROR=nowhere + "debian", UV_DEFAULT_INDEX=nowhere,
        )  # fmt: skip
    assert "from the cache" in done.stderr
    assert "Unpacking" not in done.stderr
    assert sbx_id(project, home) == sbx_id(project, kept)
    assert run_px("store", "verify", "--offline", cwd=project, PX_HOME=str(home.root)).returncode == 0
    assert run_px("run", "--sandbox", "echo", "hello", cwd=project, PX_HOME=str(home.root)).stdout == "hello\n"
    remove_tree(home.root)


@pytest.fixture
def filled(project: Path) -> Iterator[OciRegistry]:
    """A registry that has the project's objects, and does as the test says."""
    with running() as server:
        run_px("sync", "--sandbox", cwd=project)
        run_px("cache", "push", cwd=project, PX_CACHE=f"{server.host}/{PATH}")
        yield server


def wrong_bytes(server: OciRegistry) -> None:
    for name, content in server.blobs.items():
        if len(content) > 1000:
            middle = len(content) // 2
            server.blobs[name] = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def truncated(server: OciRegistry) -> None:
    for name, content in server.blobs.items():
        server.blobs[name] = content[: len(content) // 2]


def wrong_id(server: OciRegistry) -> None:
    """Every tag leads to the object of another."""
    names = sorted(name for name in server.manifests if not name[1].startswith("sha256:"))
    rows = [server.manifests[name] for name in names]
    for name, row in zip(names, [*rows[1:], rows[0]], strict=True):
        server.manifests[name] = row


def no_documents(server: OciRegistry) -> None:
    for name, (media_type, _) in server.manifests.items():
        server.manifests[name] = (media_type, b"[]")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "lie", [wrong_bytes, pytest.param(truncated, marks=SLOW), pytest.param(no_documents, marks=SLOW)]
)
def test_a_cache_that_lies_is_refused_and_px_builds(
    lie: object, filled: OciRegistry, project: Path, kept: Home, fresh: Home
) -> None:
    assert callable(lie)
    lie(filled)
    said = sync(project, fresh, f"{filled.host}/{PATH}")
    assert said.count(SAID) == 1
    assert sbx_id(project, fresh) == sbx_id(project, kept)
    assert run_px("store", "verify", "--offline", cwd=project, PX_HOME=str(fresh.root)).returncode == 0


@pytest.mark.slow
def test_objects_under_the_names_of_others_are_not_taken(
    filled: OciRegistry, project: Path, kept: Home, fresh: Home
) -> None:
    wrong_id(filled)
    sync(project, fresh, f"{filled.host}/{PATH}")
    assert sbx_id(project, fresh) == sbx_id(project, kept)
    assert oids(fresh) <= oids(kept)


def test_a_cache_that_is_down_or_silent(project: Path, kept: Home, fresh: Home) -> None:
    run_px("sync", "--sandbox", cwd=project)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        said = sync(project, fresh, f"127.0.0.1:{silent.getsockname()[1]}/{PATH}")
    assert said.count(SAID) == 1
    assert sbx_id(project, fresh) == sbx_id(project, kept)
    shutil.rmtree(fresh.refs)
    again = run_px("sync", "--sandbox", "--force", cwd=project, PX_HOME=str(fresh.root), PX_CACHE=f"127.0.0.1:9/{PATH}")
    assert SAID not in again.stderr, "everything is here: nobody asks the cache"


def test_signatures(project: Path, kept: Home, fresh: Home, tmp_path: Path) -> None:
    run_px("sync", "--sandbox", cwd=project)
    ours, theirs = (pysequoia.Tsk.generate(f"{name} <{name}@example.org>") for name in ("ours", "theirs"))
    (tmp_path / "key").write_text(str(ours))
    for name, key in (("ours", ours), ("theirs", theirs)):
        (tmp_path / name).write_text(str(key.extract_certificate()))
    with running() as server:
        cache = f"{server.host}/{PATH}"
        run_px("cache", "push", cwd=project, PX_CACHE=cache, PX_CACHE_SIGNING_KEY=str(tmp_path / "key"))
        refused = run_px(
            "sync", "--sandbox", "--frozen", cwd=project,
            PX_HOME=str(fresh.root), PX_CACHE=cache, PX_CACHE_KEYS=str(tmp_path / "theirs"),
        )  # fmt: skip
        assert SAID in refused.stderr
        assert "is not signed by a key" in refused.stderr
        remove_tree(fresh.root)
        taken = run_px(
            "sync", "--sandbox", "--frozen", cwd=project,
            PX_HOME=str(fresh.root), PX_CACHE=cache, PX_CACHE_KEYS=str(tmp_path / "ours"),
        )  # fmt: skip
        assert SAID not in taken.stderr
        assert "Unpacking" not in taken.stderr
    done = run_px(
        "cache", "push", cwd=project, check=False, PX_CACHE=cache, PX_CACHE_SIGNING_KEY=str(tmp_path / "ours")
    )
    assert done.stderr.startswith("PX953")


def test_what_is_no_cache(project: Path) -> None:
    for name in ("not a name", "example.org/team/cache:tag", "px.local/x"):
        done = run_px("cache", "push", cwd=project, check=False, PX_CACHE=name)
        assert done.stderr.startswith("PX953"), name
    assert run_px("cache", "push", cwd=project, check=False, PX_CACHE="").stderr.startswith(
        "PX953  The shared cache cannot be used: neither"
    )
