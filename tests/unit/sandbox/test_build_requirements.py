"""Where build requirements come from: the project's settings, but never as builds on this machine."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from px.env.artifacts import Artifact
from px.project.settings import Settings
from px.sandbox.build.requirements import as_asked, sdists, settings_directory, use_interpreter, without_wheels

if TYPE_CHECKING:
    from pathlib import Path

INDEX = '[[tool.uv.index]]\nname = "own"\nurl = "{url}"\ndefault = true\n'


@pytest.mark.parametrize("text", ["", "[tool.uv]\nno-build = true\n", INDEX.format(url="./wheels")])
def test_settings_that_ask_for_no_builds_are_used_as_they_are(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert settings_directory(Settings(tmp_path), tmp_path / "scratch") == tmp_path
    assert not (tmp_path / "scratch").exists()


def test_packages_that_the_project_builds_are_wheels_as_build_requirements(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[tool.uv]\nno-binary-package = ["lxml"]\nfind-links = ["../more", "größe", "https://host.example/links"]\n'
        '[tool.uv.sources]\nother = { path = "other" }\n[tool.uv.pip]\nno-binary = [":all:"]\nno-index = true\n'
        + INDEX.format(url="./wheels"),
        encoding="utf-8",
    )
    scratch = settings_directory(Settings(root), tmp_path / "scratch")
    assert tomllib.loads((scratch / "uv.toml").read_text(encoding="utf-8")) == {
        "find-links": [str(tmp_path / "more"), str(root / "größe"), "https://host.example/links"],
        "index": [{"name": "own", "url": str(root / "wheels"), "default": True}],
        "pip": {"no-index": True},
    }


def test_uv_toml_comes_before_pyproject_and_parents_are_searched(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nno-binary-package = ["lxml"]\n')
    below = tmp_path / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text('[project]\nname = "below"\n')
    assert settings_directory(Settings(below), tmp_path / "scratch") == tmp_path / "scratch"
    (below / "uv.toml").write_text('index-strategy = "unsafe-best-match"\n')
    assert settings_directory(Settings(below), tmp_path / "again") == below


@pytest.mark.parametrize(
    "start", ["#!/home/me/python 3.11/bin/python\n", "#!/bin/sh\n'''exec' '/a b/bin/python3' \"$0\" \"$@\"\n' '''\n"]
)
def test_programs_are_run_by_the_sandboxs_python(start: str, tmp_path: Path) -> None:
    (tmp_path / "meson").write_text(f"{start}import sys\n")
    (tmp_path / "ninja").write_bytes(b"\x7fELF\0python\n")
    (tmp_path / "tool").write_text("#!/bin/sh\necho python\n")
    use_interpreter(tmp_path, "/usr/bin/python3")
    assert (tmp_path / "meson").read_text() == "#!/usr/bin/python3\nimport sys\n"
    assert (tmp_path / "ninja").read_bytes() == b"\x7fELF\0python\n"
    assert (tmp_path / "tool").read_text() == "#!/bin/sh\necho python\n"
    use_interpreter(tmp_path / "none", "/usr/bin/python3")


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
