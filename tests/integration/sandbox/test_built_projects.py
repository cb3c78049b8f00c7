"""Projects that must be built to be known: compiled parts of their own, versions that come from git."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.px import run_px

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home

pytestmark = pytest.mark.network
COMPILED = """\
[project]
name = "fast-thing"
version = "3.2"
requires-python = ">=3.11,<3.12"
[project.scripts]
fast = "fast_thing:main"
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[[tool.setuptools.ext-modules]]
name = "fast_thing._native"
sources = ["src/fast_thing/native.c"]
"""
NATIVE = """\
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(%d); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", 0, -1, methods};
PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
"""
MODULE = "from fast_thing import _native\n\n\ndef main():\n    print({!r}, _native.answer())\n"
COMPUTED = """\
[project]
name = "versioned"
dynamic = ["version"]
requires-python = ">=3.11,<3.12"
[build-system]
requires = ["setuptools>=77", "setuptools-scm>=8"]
build-backend = "setuptools.build_meta"
[tool.setuptools_scm]
write_to = "src/versioned/_version.py"
"""
MESON = """\
[project]
name = "mesonic"
dynamic = ["version"]
requires-python = ">=3.11,<3.12"
[build-system]
requires = ["meson-python"]
build-backend = "mesonpy"
"""
OLD_STYLE = """\
[project]
name = "old-style"
version = "1.0"
dynamic = ["scripts"]
requires-python = ">=3.11,<3.12"
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""
SHOW = "import importlib.metadata as m, versioned._version as v; print(m.version('versioned'), v.version)"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def git(root: Path, *args: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", *identity, *args], cwd=root, check=True, capture_output=True)


def test_an_extension_of_its_own_gets_the_libraries_that_it_needs(tmp_path: Path, warm: Home) -> None:
    """OpenMP's library is there where it is compiled, and in the sandbox only with its capability."""
    openmp = 'extra-compile-args = ["-fopenmp"]\nextra-link-args = ["-fopenmp"]\n'
    source = NATIVE.replace("#include <Python.h>\n", "#include <Python.h>\n#include <omp.h>\n") % 1
    source = source.replace("FromLong(1)", "FromLong(omp_get_max_threads())")
    files = {"src/fast_thing/__init__.py": MODULE.format("threads"), "src/fast_thing/native.c": source}
    write(tmp_path, {"pyproject.toml": COMPILED + openmp, **files})
    run_px("sync", "--sandbox", cwd=tmp_path)
    assert run_px("run", "--sandbox", "fast", cwd=tmp_path).stdout.startswith("threads ")
    explained = json.loads(run_px("sandbox", "explain", "--json", cwd=tmp_path).stdout)["details"]
    (openmp_row,) = explained["capabilities"]
    assert openmp_row["name"] == "openmp"
    assert "libgomp.so.1" in openmp_row["reasons"][0]["text"]
    # The link check sees it too.
    write(tmp_path, {"pyproject.toml": f"{COMPILED}{openmp}[tool.px.sandbox]\nauto = false\n"})
    refused = run_px("sync", "--sandbox", cwd=tmp_path, check=False)
    assert "PX902  A system library" in refused.stderr
    assert "px sandbox add openmp" in refused.stderr


def test_a_project_with_an_extension_of_its_own(tmp_path: Path, warm: Home) -> None:
    write(
        tmp_path,
        {
            "pyproject.toml": COMPILED,
            "src/fast_thing/__init__.py": MODULE.format("one"),
            "src/fast_thing/native.c": NATIVE % 42,
        },
    )
    run_px("sync", "--sandbox", cwd=tmp_path)
    assert run_px("run", "--sandbox", "fast", cwd=tmp_path).stdout == "one 42\n"
    assert not list(tmp_path.rglob("*.so")), "the working tree is the user's"
    # Code is live (of another size: Python looks at whole seconds); what is compiled changes with the next sync.
    write(tmp_path, {"src/fast_thing/__init__.py": MODULE.format("another"), "src/fast_thing/native.c": NATIVE % 43})
    assert run_px("run", "--sandbox", "fast", cwd=tmp_path).stdout == "another 42\n"
    run_px("sync", "--sandbox", "--force", cwd=tmp_path)
    assert run_px("run", "--sandbox", "fast", cwd=tmp_path).stdout == "another 43\n"
    # Unless the manifest says, as for uv, that these files matter.
    write(tmp_path, {"pyproject.toml": COMPILED + '[tool.uv]\ncache-keys = [{ file = "src/**/*.c" }]\n'})
    assert run_px("run", "--sandbox", "fast", cwd=tmp_path).stdout == "another 43\n"
    write(tmp_path, {"src/fast_thing/native.c": NATIVE % 44})
    assert run_px("run", "--sandbox", "fast", cwd=tmp_path).stdout == "another 44\n"
    # A mistake in it is said with the compiler's own words.
    write(tmp_path, {"src/fast_thing/native.c": "#include <libpq-fe.h>\n"})
    failed = run_px("sync", "--sandbox", "--force", cwd=tmp_path, check=False)
    assert failed.stderr.startswith("Building fast-thing")
    assert "PX902" in failed.stderr
    assert "px sandbox add postgres" in failed.stderr


@pytest.mark.slow
def test_scripts_that_only_setuptools_knows(tmp_path: Path, warm: Home) -> None:
    scripts = "[options.entry_points]\nconsole_scripts =\n    {} = old_style:main\n"
    write(
        tmp_path,
        {
            "pyproject.toml": OLD_STYLE,
            "setup.cfg": scripts.format("first"),
            "src/old_style/__init__.py": "def main():\n    print('it runs')\n",
        },
    )
    run_px("sync", "--sandbox", cwd=tmp_path)
    assert run_px("run", "--sandbox", "first", cwd=tmp_path).stdout == "it runs\n"
    assert run_px("run", "first", cwd=tmp_path).stdout == "it runs\n"
    write(tmp_path, {"setup.cfg": scripts.format("second")})
    assert run_px("run", "--sandbox", "second", cwd=tmp_path).stdout == "it runs\n"
    assert run_px("run", "second", cwd=tmp_path).stdout == "it runs\n"


def test_a_version_that_comes_from_git(tmp_path: Path, warm: Home) -> None:
    write(
        tmp_path,
        {"pyproject.toml": COMPUTED, "src/versioned/__init__.py": "", ".gitignore": "_version.py\n*.egg-info\n.px/\n"},
    )
    git(tmp_path, "init", "-q")
    run_px("sync", "--sandbox", cwd=tmp_path)  # no commit yet: there is nothing to compute it from
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "v1.4.0")
    run_px("sync", "--sandbox", "--force", cwd=tmp_path)
    assert run_px("run", "--sandbox", "python", "-c", SHOW, cwd=tmp_path).stdout == "1.4.0 1.4.0\n"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    run_px("sync", "--sandbox", "--force", cwd=tmp_path)
    shown = run_px("run", "--sandbox", "python", "-c", SHOW, cwd=tmp_path).stdout
    assert shown.startswith("1.4.1.dev1+g")
    assert ".d20" not in shown, "nothing was changed since the commit"


@pytest.mark.slow
def test_a_project_that_is_compiled_to_be_locked(tmp_path: Path, warm: Home) -> None:
    """meson-python has no other way to say the version."""
    lines = ["project('mesonic', 'c', version: '1.7')", "py = import('python').find_installation()"]
    lines += ["py.extension_module('_native', 'native.c', install: true)"]
    write(tmp_path, {"pyproject.toml": MESON, "meson.build": "\n".join(lines), "native.c": NATIVE % 7})
    program = "import _native, importlib.metadata as m; print(_native.answer(), m.version('mesonic'))"
    run_px("sync", "--sandbox", cwd=tmp_path)
    assert run_px("run", "--sandbox", "python", "-c", program, cwd=tmp_path).stdout == "7 1.7\n"


@pytest.mark.slow
def test_two_clones_of_a_built_project_pack_to_one_image(tmp_path: Path, warm: Home) -> None:
    first, second = tmp_path / "first", tmp_path / "a second place"
    write(
        first,
        {
            "pyproject.toml": COMPILED,
            "src/fast_thing/__init__.py": MODULE.format("one"),
            "src/fast_thing/native.c": NATIVE % 42,
            ".gitignore": ".px/\n*.egg-info\n",
        },
    )
    run_px("sync", "--sandbox", cwd=first)
    git(first, "init", "-q")
    git(first, "add", "-A")
    git(first, "commit", "-q", "-m", "first")
    git(tmp_path, "clone", "-q", str(first), str(second))
    run_px("sync", "--sandbox", cwd=second, PX_HOME=str(tmp_path / "other-home"))
    digests = {
        json.loads(run_px("pack", "image", "--json", cwd=root, PX_HOME=str(place)).stdout)["details"]["digest"]
        for root, place in ((first, warm.root), (second, tmp_path / "other-home"))
    }
    assert len(digests) == 1
