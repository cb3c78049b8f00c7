"""Runs inside the builder sandbox, with the image's python: unpacks an sdist and calls its build backend.

Never imported by px.  ``prepare`` unpacks and prints the build requirements; ``extra`` prints what the
backend asks for beyond those; ``wheel`` builds.  Answers go to a file, because builds print what they like.
"""

import importlib
import json
import os
import sys
import tarfile
import tomllib
import zipfile

ROOT = "/build"
SOURCE = os.path.join(ROOT, "source")
ANSWER = os.path.join(ROOT, "answer.json")
LEGACY: dict[str, object] = {
    "requires": ["setuptools>=40.8.0", "wheel"],
    "build-backend": "setuptools.build_meta:__legacy__",
}


def unpack(archive: str) -> None:
    """Unpack into SOURCE; a second directory level that only holds the project is taken away."""
    if archive.endswith(".zip"):
        with zipfile.ZipFile(archive) as z:
            z.extractall(SOURCE)  # noqa: S202 - the sandbox holds whatever it does
    else:
        with tarfile.open(archive) as t:
            t.extractall(SOURCE)  # noqa: S202 - the sandbox holds whatever it does
    inside = os.listdir(SOURCE)
    if len(inside) == 1 and os.path.isdir(os.path.join(SOURCE, inside[0])):
        os.rename(os.path.join(SOURCE, inside[0]), SOURCE + ".tmp")
        os.rmdir(SOURCE)
        os.rename(SOURCE + ".tmp", SOURCE)


def project() -> str:
    return os.path.join(SOURCE, os.environ.get("PX_SUBDIRECTORY", ""))


def build_system() -> dict[str, object]:
    path = os.path.join(project(), "pyproject.toml")
    if not os.path.exists(path):
        return LEGACY
    with open(path, "rb") as f:
        return {**LEGACY, **tomllib.load(f).get("build-system", {})}


def backend() -> object:
    table = build_system()
    for path in table.get("backend-path", []):  # type: ignore[attr-defined]
        sys.path.insert(0, os.path.join(project(), path))
    module, _, attribute = str(table["build-backend"]).partition(":")
    found: object = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


def main() -> None:
    action = sys.argv[1]
    if action == "prepare":
        if len(sys.argv) > 2:
            os.makedirs(SOURCE, exist_ok=True)
            unpack(sys.argv[2])
        answer: object = build_system()["requires"]
    else:
        os.chdir(project())
        sys.path.insert(0, "")
        hooks = backend()
        if action == "extra":
            ask = getattr(hooks, f"get_requires_for_build_{sys.argv[2]}", None)
            answer = ask({}) if ask is not None else []
        else:
            answer = getattr(hooks, f"build_{sys.argv[2]}")(os.path.join(ROOT, "out"), {})
    with open(ANSWER, "w") as f:
        json.dump(answer, f)


main()
