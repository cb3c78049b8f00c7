"""Where build requirements come from: the project's settings, but never as builds on this machine."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from px.env.artifacts import Artifact
from px.home import Home
from px.project.context import Context
from px.project.settings import Settings
from px.sandbox.build.requirements import as_asked, sdists, shown_settings, without_wheels
from px.store.objects import Store

INDEX = '[[tool.uv.index]]\nname = "own"\nurl = "{url}"\ndefault = true\n'


def shown(context: Context, given: Path) -> tuple[Path, list[str]]:
    given.mkdir()
    directory, mounts = shown_settings(context, given)
    assert all(m.read_only for m in mounts)
    return directory, [m.target for m in mounts]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')
    return Context(Store(Home(tmp_path / "px-home")), root)


@pytest.mark.parametrize("text", ["", "[tool.uv]\nno-build = true\n", INDEX.format(url="./wheels")])
def test_settings_that_ask_for_no_builds_are_used_as_they_are(text: str, context: Context, tmp_path: Path) -> None:
    (context.directory / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n' + text)
    manifest = [str(context.root / "pyproject.toml")]
    assert shown(context, tmp_path / "given") == (context.root, manifest)
    assert not (tmp_path / "given" / "uv.toml").exists()


def test_packages_that_the_project_builds_are_wheels_as_build_requirements(context: Context, tmp_path: Path) -> None:
    root = context.directory
    (root / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.uv]\nno-binary-package = ["lxml"]\n'
        'find-links = ["../more", "größe", "https://host.example/links"]\n'
        '[tool.uv.sources]\nother = { path = "other" }\n[tool.uv.pip]\nno-binary = [":all:"]\nno-index = true\n'
        + INDEX.format(url="./wheels"),
        encoding="utf-8",
    )
    assert shown(context, tmp_path / "given") == (Path("/build/given"), [])
    assert tomllib.loads((tmp_path / "given" / "uv.toml").read_text(encoding="utf-8")) == {
        "find-links": [str(tmp_path / "more"), str(root / "größe"), "https://host.example/links"],
        "index": [{"name": "own", "url": str(root / "wheels"), "default": True}],
        "pip": {"no-index": True},
    }


def test_uv_toml_comes_before_pyproject_and_parents_are_searched(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nno-binary-package = ["lxml"]\n')
    below = tmp_path / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text('[project]\nname = "below"\n')
    assert Settings(below).directory == tmp_path
    (below / "uv.toml").write_text('index-strategy = "unsafe-best-match"\n')
    assert Settings(below).directory == below


@pytest.mark.parametrize(
    ("complaint", "names"),
    [
        ("Because pycairo>=1.16.0 has no usable wheels and you require pycairo>=1.16, we can conclude", {"pycairo"}),
        ("Because all versions of Py.Cairo have no usable wheels and a==1 has no wheels with", {"py-cairo", "a"}),
        ("Because nothing was not found in the package registry and you require nothing", set()),
    ],
)
def test_packages_without_wheels_are_known_by_what_uv_says(complaint: str, names: set[str]) -> None:
    assert without_wheels(complaint) == names


def test_packages_without_wheels_are_asked_for_as_the_build_asks_for_them() -> None:
    asked = ["Py_Cairo[a]>=1.16; python_version > '3'", "setuptools"]
    assert as_asked(asked, frozenset({"py-cairo", "deeper"})) == ["deeper", asked[0]]


def test_sources_are_taken_from_what_uv_chose() -> None:
    chosen = (
        'lock-version = "1.0"\n[[packages]]\nname = "a"\nversion = "1.0"\n'
        'sdist = { url = "https://host.example/x/a-1.0.tar.gz", upload-time = 2026-10-04T19:11:03Z, '
        'hashes = { sha256 = "ab" } }\n[[packages]]\nname = "b"\nversion = "1"\nwheels = []\n'
    )
    uploaded = "2026-10-04T19:11:03+00:00"
    location = "https://host.example/x/a-1.0.tar.gz"
    assert sdists(chosen) == [Artifact("a", "1.0", "sdist", location, "ab", filename="a-1.0.tar.gz", uploaded=uploaded)]
