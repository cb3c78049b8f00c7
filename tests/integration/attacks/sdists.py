"""Malicious packages: sdists whose build does what it likes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tests.support.wheels import WheelSpec

MAKE_WHEEL = """
def _wheel(directory, files):
    import base64, hashlib, os, zipfile
    info = "NAME-1.0.dist-info"
    files = {**files, info + "/METADATA": b"Metadata-Version: 2.2\\nName: NAME\\nVersion: 1.0\\n"}
    files[info + "/WHEEL"] = b"Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    rows = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows += f"{name},sha256={digest},{len(content)}\\n"
    files[info + "/RECORD"] = (rows + info + "/RECORD,,\\n").encode()
    wheel = "NAME-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel
"""
# How a build learns where its directories lie on the host: the kernel tells it.
HOST_PATH = """
def _host_path(inside):
    best = ("", "")
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        if inside == fields[4] or inside.startswith(fields[4].rstrip("/") + "/"):
            if len(fields[4]) >= len(best[1]):
                best = (fields[3], fields[4])
    return best[0] + inside[len(best[1]):]
"""


def sdist(directory: Path, name: str, backend: str, *, requires: str = "", static: bool = True) -> Path:
    """``name-1.0.tar.gz`` with an in-tree backend; without ``static`` metadata it must be built to be resolved."""
    directory.mkdir(parents=True, exist_ok=True)
    system = f'[build-system]\nrequires = [{requires}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project = f'[project]\nname = "{name}"\n' + (
        'version = "1.0"\n' if static else 'dynamic = ["version", "dependencies"]\n'
    )
    files = {
        "pyproject.toml": project + system,
        "backend.py": (MAKE_WHEEL + HOST_PATH + backend).replace("NAME", name),
    }
    if static:
        files["PKG-INFO"] = f"Metadata-Version: 2.2\nName: {name}\nVersion: 1.0\n"
    path = directory / f"{name}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def project(root: Path, sdist: Path, more: str = "") -> Path:
    """A project that depends on one such package."""
    root.mkdir(parents=True, exist_ok=True)
    name = sdist.name.partition("-")[0]
    (root / "pyproject.toml").write_text(
        '[project]\nname = "careless"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["{name}"]\n[tool.uv.sources]\n{name} = {{ path = "{sdist}" }}\n{more}'
    )
    return root


def drop(directory: Path) -> Path:
    """A wheel that puts a file of the attacker's wherever it is installed."""
    directory.mkdir(parents=True, exist_ok=True)
    return WheelSpec("drop", "1.0", files={"pwned": b"the attacker was here\n"}).write(directory)
