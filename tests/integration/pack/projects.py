"""A committed uv project that is packed, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from px.oci.image import File, ReadImage, layer_files, read_images
from px.oci.sources import source_of
from tests.support.px import run_px

UV = Path(sys.executable).parent / "uv"
AUTHOR = ("-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "protocol.file.allow=always")
DATE = {"GIT_AUTHOR_DATE": "2024-02-03T04:05:06 +0545", "GIT_COMMITTER_DATE": "2024-02-03T04:05:06 +0545"}

MANIFEST = """\
[project]
name = "demo-app"
version = "1.2.3"
description = "It says where it runs."
requires-python = ">=3.11"
dependencies = ["hello"]

[project.optional-dependencies]
more = ["extra-thing"]

[project.scripts]
demo-app = "demo_app:main"

[dependency-groups]
dev = ["linter"]
space = ["ns-one"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.px.env]
APP_MODE = "production"
"""
MODULE = """\
import importlib.metadata, os, sys

import leaf


def main() -> int:
    print("arguments", *sys.argv[1:])
    print("python", sys.version.split()[0], sys.executable, sys.prefix)
    print("packages", *sorted(d.name + "==" + d.version for d in importlib.metadata.distributions()))
    print("code", __file__, "in", os.getcwd(), leaf.VERSION, os.environ["APP_MODE"], os.environ["PATH"])
    print("system", *open("/etc/os-release").read().split()[:1], *sorted(os.listdir("/app")))
    return 3
"""


@dataclass(frozen=True)
class Made:
    """What ``px pack image --json`` said."""

    details: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.details["digest"])

    @property
    def names(self) -> list[str]:
        return list(self.details["names"])

    def layers(self, platform: str = "linux/amd64") -> dict[str, str]:
        """Digest of each layer, by what it is."""
        image = next(i for i in self.details["images"] if i["platform"] == platform)
        return {layer["what"].removeprefix("px: "): layer["digest"] for layer in image["layers"]}


@dataclass(frozen=True)
class Project:
    """A project in a git repository."""

    root: Path

    def write(self, path: str, content: str, mode: int = 0o644) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def git(self, *args: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *AUTHOR, *args],
            cwd=cwd or self.root,
            env={**os.environ, **DATE},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {args}: {done.stderr}"
        return done.stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "work")

    def lock(self) -> None:
        subprocess.run([UV, "lock", "--quiet"], cwd=self.root, check=True, timeout=120)

    def px(self, *args: str | Path, check: bool = True, **env: Any) -> subprocess.CompletedProcess[str]:
        return run_px(*args, cwd=self.root, check=check, **env)

    def sync(self) -> None:
        self.px("sync", "--sandbox")

    def pack(self, *flags: str | Path, **env: Any) -> Made:
        return Made(json.loads(self.px("pack", "image", "--json", *flags, **env).stdout)["details"])

    def refused(self, *flags: str | Path, code: int = 125, **env: Any) -> str:
        """What px says when it does not pack."""
        done = self.px("pack", "image", *flags, check=False, **env)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return done.stderr

    def verify(self, image: str | Path, **env: Any) -> subprocess.CompletedProcess[str]:
        return self.px("pack", "verify", image, check=False, **env)

    def packed_files(self, *flags: str) -> dict[str, File]:
        """Every path below ``/app`` of the image that it gives."""
        archive = self.root.with_name("looked-at.tar")
        self.pack("--out", archive, *flags)
        return app_files(image_in(archive))


def make_project(root: Path, manifest: str = MANIFEST, module: str = MODULE) -> Project:
    """Write, lock and commit it."""
    project = Project(root)
    project.write("pyproject.toml", manifest)
    project.write("src/demo_app/__init__.py", module)
    project.write(".gitignore", "__pycache__/\n*.egg-info/\n")
    project.lock()
    project.git("init", "-q", "-b", "main")
    project.commit()
    return project


def image_in(path: Path) -> ReadImage:
    (image,) = read_images(source_of(str(path)))
    return image


def app_files(image: ReadImage) -> dict[str, File]:
    files = layer_files(image.layers[-1])
    return {path.removeprefix("app/"): file for path, file in files.items() if path.startswith("app/")}


def installed(image: ReadImage) -> set[str]:
    """The Python packages in an image, from its metadata directories, as a scanner finds them."""
    paths = (path for layer in image.layers[1:] for path in layer_files(layer))  # the base has none of ours
    found = (path.rpartition("/")[2] for path in paths if path.endswith(".dist-info") and "/opt/" in f"/{path}")
    return {name.removesuffix(".dist-info").rpartition("-")[0] for name in found}


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"
    return done
