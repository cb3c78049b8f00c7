"""Extension modules built in the builder sandbox for a Python that the base does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.home import Home
from tests.integration.sandbox_runtime import standalone
from tests.support.px import run_px

SOURCE = """
#include <Python.h>
static PyObject *version(PyObject *self, PyObject *none) { return PyUnicode_FromString(PY_VERSION); }
static PyMethodDef methods[] = {{"version", version, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "cext", 0, -1, methods};
PyMODINIT_FUNC PyInit_cext(void) { return PyModule_Create(&module); }
"""
PACKAGE = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "cext"
version = "1.0"
[tool.setuptools]
ext-modules = [{name = "cext", sources = ["cext.c"]}]
"""
PROJECT = """
[project]
name = "app"
version = "0.1"
requires-python = ">=3.12"
dependencies = ["cext"]
[tool.uv.sources]
cext = { path = "cext" }
"""


@pytest.mark.slow
@pytest.mark.network
def test_an_extension_is_built_with_the_layers_headers(
    tmp_path: Path, warm_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = standalone.build(tmp_path)
    monkeypatch.setenv("PX_HOME", str(warm_home.root))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", build.listing.as_uri())
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv-pythons"))
    root = tmp_path / "app"
    (root / "cext").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "cext/pyproject.toml").write_text(PACKAGE)
    (root / "cext/cext.c").write_text(SOURCE)
    run_px("sync", "--sandbox", cwd=root)
    code = "import cext; print(cext.version(), cext.__file__)"
    seen = run_px("run", "--sandbox", "python", "-c", code, cwd=root).stdout.split()
    assert seen[0] == build.version
    assert seen[1].startswith(f"/opt/px/env/lib/python{standalone.MINOR}/site-packages/cext.cpython-312-")
