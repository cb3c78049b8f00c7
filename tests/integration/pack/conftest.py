"""One locked project that every test gets a clone of, in a px home that has the base already."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from tests.integration.pack.projects import Project, make_project
from tests.support.index import Index, serving
from tests.support.needs import need
from tests.support.px import snapshot


@pytest.fixture(scope="session")
def standing_index(wheelhouse: Path) -> Iterator[Index]:
    """The small index, at one address for all tests: locks name it."""
    with serving(wheelhouse) as found:
        yield found


@pytest.fixture(scope="session")
def template(standing_index: Index, tmp_path_factory: pytest.TempPathFactory) -> Project:
    directory = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_DEFAULT_INDEX", standing_index.url)
        patch.setenv("UV_CACHE_DIR", str(directory / "uv-cache"))
        return make_project(directory / "demo")


@pytest.fixture(autouse=True)
def _environment(standing_index: Index, warm_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """px with downloads at hand, git and registries without the developer's own settings."""
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    monkeypatch.setenv("UV_DEFAULT_INDEX", standing_index.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
    for name in ("PX_REGISTRY_TOKEN", "PX_REGISTRY_USERNAME", "PX_REGISTRY_PASSWORD", "REGISTRY_AUTH_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def synced(
    template: Project, warm_home: Home, standing_index: Index, tmp_path_factory: pytest.TempPathFactory
) -> Project:
    need("bubblewrap")
    directory = tmp_path_factory.mktemp("shared")
    clone = Project(Path(shutil.copytree(template.root, directory / "demo")))
    clone.px(
        "sync", "--sandbox", PX_HOME=str(warm_home.root), UV_DEFAULT_INDEX=standing_index.url,
        UV_CACHE_DIR=str(directory / "uv-cache"),
    )  # fmt: skip
    return clone


@pytest.fixture
def shared(synced: Project) -> Iterator[Project]:
    """One clone for all tests that leave it as it is."""
    before = snapshot(synced.root)
    yield synced
    assert snapshot(synced.root) == before


@pytest.fixture
def project(template: Project, tmp_path: Path) -> Project:
    """A clone whose sandbox is built."""
    need("bubblewrap")
    clone = Project(Path(shutil.copytree(template.root, tmp_path / "project")))
    clone.sync()
    return clone
