"""What the sandbox knows of the project itself without running its build backend: version and source directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.errors import PxError
from px.project.manifest import Manifest
from px.sandbox.layers.project import has_compiled_parts, reason, source_directories, written_version

DYNAMIC = '[project]\nname = "my-app"\ndynamic = ["version"]\n'


def manifest(root: Path, text: str, files: dict[str, str] | None = None) -> Manifest:
    for name, content in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "pyproject.toml").write_text(text)
    return Manifest.read(root / "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ('[project]\nname = "my-app"\nversion = "1.5"\n', {}, "1.5"),
        ('[project]\nname = "my-app"\nversion = "1.0.0-rc1"\n', {}, "1.0.0rc1"),
        ('[project]\nname = "my-app"\nversion = "v01.2"\n', {}, "1.2"),
        (DYNAMIC, {"src/my_app/__init__.py": "__version__ = '2.0.alpha.1'\n"}, "2.0a1"),
        (DYNAMIC, {"src/my_app/__init__.py": "__version__ = '2.0'\n"}, "2.0"),
        (DYNAMIC, {"my_app/__init__.py": "__version__: str = '2.1'\n"}, "2.1"),
        (DYNAMIC + '[tool.hatch.version]\npath = "v.py"\n', {"v.py": "__version__ = '3'\n"}, "3"),
        (DYNAMIC + '[tool.hatch.version]\npath = "VERSION"\npattern = "^(?P<version>.+)$"\n',
         {"VERSION": "3.1.0\n"}, "3.1.0"),
        (DYNAMIC + '[tool.hatch.version]\npath = "v.py"\npattern = "^N = .(?P<version>.+).$"\n',
         {"v.py": "a = 1\nN = '3.2'\n"}, "3.2"),
        (DYNAMIC + '[tool.setuptools.dynamic]\nversion = { attr = "my_app.v.NUMBER" }\n',
         {"my_app/v.py": "NUMBER = '4'\n"}, "4"),
        (DYNAMIC + '[tool.setuptools.dynamic]\nversion = { file = "VERSION" }\n', {"VERSION": "5.1\n"}, "5.1"),
        (DYNAMIC + '[tool.setuptools.dynamic]\nversion = { file = ["VERSION"] }\n', {"VERSION": "5.2\n"}, "5.2"),
    ],
)  # fmt: skip
def test_versions_that_are_written_down(tmp_path: Path, text: str, files: dict[str, str], expected: str) -> None:
    assert written_version(manifest(tmp_path, text, files)) == expected


@pytest.mark.parametrize(
    "text",
    [
        DYNAMIC + '[tool.hatch.version]\nsource = "vcs"\n',
        DYNAMIC + '[tool.hatch.version]\npath = "VERSION"\n',
        DYNAMIC + '[tool.hatch.version]\npath = "VERSION"\npattern = "(.+)"\n',
        DYNAMIC + '[tool.hatch.version]\npath = "VERSION"\npattern = "("\n',
        DYNAMIC + '[tool.setuptools.dynamic]\nversion = { file = "not-there" }\n',
        DYNAMIC + "[tool.setuptools_scm]\n",
    ],
)
def test_a_version_that_is_computed_is_not_written_down(tmp_path: Path, text: str) -> None:
    assert written_version(manifest(tmp_path, text, {"VERSION": "1.2.3\n"})) is None


def test_a_module_that_this_python_cannot_parse(tmp_path: Path) -> None:
    """px may run on an older Python than the project, and a module may be damaged: its build backend decides."""
    for content in ("type A[T: = 1\n", "\0"):
        assert written_version(manifest(tmp_path, DYNAMIC, {"my_app/__init__.py": content})) is None
    (tmp_path / "my_app/__init__.py").write_bytes(b"# coding: latin-1\n# \xfc\n__version__ = '6'\n")
    assert written_version(manifest(tmp_path, DYNAMIC)) == "6"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Traceback\n    error: Many packages\n    For more, see the docs", "error: Many packages"),
        ("Traceback\n    LookupError: no tag\n", "LookupError: no tag"),
        ("it ended\nwith 1", "with 1"),
    ],
)
def test_why_a_version_could_not_be_computed(said: str, line: str) -> None:
    assert reason(PxError("PX903", problem="x", why=[said])) == line


def test_what_is_no_version(tmp_path: Path) -> None:
    """It would become a part of a path in the image."""
    with pytest.raises(PxError) as caught:
        written_version(manifest(tmp_path, '[project]\nname = "my-app"\nversion = "../1"\n'))
    assert caught.value.code == "PX003"
    assert written_version(manifest(tmp_path, DYNAMIC, {"my_app/__init__.py": "__version__ = '../1'\n"})) is None


@pytest.mark.parametrize(
    ("text", "setup", "expected"),
    [
        ('[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n', "", False),
        ('[build-system]\nrequires = ["hatchling", "Scikit-Build"]\nbuild-backend = "hatchling.build"\n', "", True),
        ("", "from setuptools import setup\nsetup()\n", False),
        ("", "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('a', ['a.c'])])\n", True),
        ('[[tool.setuptools.ext-modules]]\nname = "a"\nsources = ["a.c"]\n', "", True),
        ('[build-system]\nrequires = ["setuptools", "Cython>=3"]\n', "", True),
        ('[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n', "", True),
        ('[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n', "", False),
    ],
)
def test_projects_with_compiled_parts(tmp_path: Path, text: str, setup: str, expected: bool) -> None:
    files = {"setup.py": setup} if setup else {}
    assert has_compiled_parts(manifest(tmp_path, DYNAMIC + text, files)) is expected


@pytest.mark.parametrize(
    ("tool", "files", "expected"),
    [
        ("", {"src/my_app/__init__.py": ""}, ("src",)),
        ("", {"my_app/__init__.py": ""}, (".",)),
        ('[tool.hatch.build.targets.wheel]\npackages = ["lib/my_app"]\n', {}, ("lib",)),
        ('[tool.setuptools]\npackage-dir = { "" = "code" }\n', {}, ("code",)),
        ('[tool.uv.build-backend]\nmodule-root = ""\n', {"src/x.py": ""}, (".",)),
        ('[tool.poetry]\npackages = [{ include = "my_app", from = "python" }]\n', {}, ("python",)),
    ],
)
def test_source_directories(tmp_path: Path, tool: str, files: dict[str, str], expected: tuple[str, ...]) -> None:
    assert source_directories(manifest(tmp_path, DYNAMIC + tool, files)) == expected
