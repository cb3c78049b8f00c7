"""uv's settings of a project: what they say about builds, and which files they are read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.project.settings import Settings


def test_extra_build_dependencies_are_those_of_uv(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.uv.extra-build-dependencies]\nBox2D_py = ["swig", { requirement = "cmake", match-runtime = true }]\n'
    )
    assert Settings(tmp_path).extra_requirements("box2d-py") == ["swig", "cmake"]
    assert Settings(tmp_path).extra_requirements("other") == []


def test_packages_that_the_project_wants_built_are_known(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nno-binary-package = ["Some_Thing"]\n')
    assert (Settings(tmp_path).from_source("some-thing"), Settings(tmp_path).from_source("other")) == (True, False)


def test_what_a_build_is_told_is_the_projects_then_the_packages_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.uv]\nconfig-settings = { a = "1", b = "1" }\n'
        '[tool.uv.config-settings-package]\nMat_Lib = { b = ["2", "3"] }\n'
        '[tool.uv.extra-build-variables]\nmat-lib = { FAST = "1" }\n'
    )
    told = Settings(tmp_path).build_variables("mat-lib")
    assert told == {"FAST": "1", "PX_CONFIG_SETTINGS": '{"a": "1", "b": ["2", "3"]}'}
    assert Settings(tmp_path).build_variables("other") == {"PX_CONFIG_SETTINGS": '{"a": "1", "b": "1"}'}
    (tmp_path / "pyproject.toml").write_text("")
    assert Settings(tmp_path).build_variables("other") == {}


def test_the_nearest_directory_decides_and_there_uv_toml_comes_first(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.uv]\nno-binary = true\n")
    below = tmp_path / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text('[project]\nname = "below"\n')
    assert Settings(below).project == {"no-binary": True}
    assert Settings(below).from_source("anything")
    (below / "pyproject.toml").write_text('[tool.uv]\nbuild-constraint-dependencies = ["setuptools<80"]\n')
    assert Settings(below).build_constraints == ["setuptools<80"]
    (below / "uv.toml").write_text("no-index = true\n")
    assert Settings(below).project == {"no-index": True}


def test_the_users_own_say_how_indexes_are_reached_and_nothing_of_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, config = tmp_path / "project", tmp_path / "config"
    for directory in (root, config / "uv"):
        directory.mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.uv]\nindex-url = "https://one.example"\n')
    (config / "uv/uv.toml").write_text('index-url = "https://two.example"\nno-binary = true\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    assert [table.get("index-url") for table in Settings(root).tables][:2] == [
        "https://one.example", "https://two.example",
    ]  # fmt: skip
    assert not Settings(root).from_source("anything")
    monkeypatch.setenv("UV_CONFIG_FILE", str(config / "uv/uv.toml"))
    assert [table["index-url"] for table in Settings(root).tables] == ["https://two.example"]


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("no-binary = [\n")
    assert Settings(tmp_path).project == {}
    assert not Settings(tmp_path).asks_for_builds
