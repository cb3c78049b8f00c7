"""Small packages with a compiled part and no wheel: real C, and a build backend of their own that needs nothing."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

BACKEND = """\
import base64, hashlib, os, subprocess, sysconfig, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    module = "NAME" + sysconfig.get_config_var("EXT_SUFFIX")
    flags = os.environ.get("CFLAGS", "").split()
    include = "-I" + sysconfig.get_path("include")
    print("compiling with", *flags, flush=True)
    command = ["cc", *flags, "-shared", "-fPIC", include, "NAME.c", "-o", module, *"LIBRARIES".split()]
    subprocess.run(command, check=True)
    info = "NAME-1.0.dist-info"
    files = {module: open(module, "rb").read()}
    files[info + "/METADATA"] = b"Metadata-Version: 2.2\\nName: NAME\\nVersion: 1.0\\n"
    tag = "cp311-cp311-linux_x86_64"
    files[info + "/WHEEL"] = f"Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: false\\nTag: {tag}\\n".encode()
    rows = str()
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows += f"{name},sha256={digest},{len(content)}\\n"
    files[info + "/RECORD"] = (rows + info + "/RECORD,,\\n").encode()
    wheel = f"NAME-1.0-{tag}.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel
"""
SOURCE = """\
#include <Python.h>
INCLUDES
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_NAME(void) {
    PyObject *made = PyModule_Create(&module);
#ifdef __OPTIMIZE__
    PyModule_AddIntConstant(made, "optimized", 1);
#endif
    PyModule_AddIntConstant(made, "answer", 42);
    return made;
}
"""
PYPROJECT = """\
[project]
name = "NAME"
version = "1.0"
[build-system]
requires = [REQUIRES]
build-backend = "backend"
backend-path = ["."]
"""


def make_sdist(
    directory: Path, name: str, *, includes: str = "", libraries: str = "", backend: str = "", requires: str = ""
) -> Path:
    """Write NAME-1.0.tar.gz: lines of C, flags of the linker, what the build backend shall do besides and needs."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-1.0.tar.gz"
    files = {
        "pyproject.toml": PYPROJECT.replace("REQUIRES", f'"{requires}"' if requires else ""),
        "backend.py": backend + BACKEND.replace("LIBRARIES", libraries),
        f"{name}.c": SOURCE.replace("INCLUDES", includes),
        "PKG-INFO": "Metadata-Version: 2.2\nName: NAME\nVersion: 1.0\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            content = text.replace("NAME", name).encode()
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_project(root: Path, sdist: Path, more: str = "") -> Path:
    """A project that depends on one such package."""
    root.mkdir(parents=True, exist_ok=True)
    name = sdist.name.partition("-")[0]
    (root / "pyproject.toml").write_text(
        '[project]\nname = "uses-native"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["{name}"]\n[tool.uv.sources]\n{name} = {{ path = "{sdist}" }}\n{more}'
    )
    return root
