"""What builds require: it comes from where the project's uv settings say, and is built and run in the sandbox only.

A project may tell uv to build some packages from source (``no-binary-package``). That is meant for its env, where px
builds them in the sandbox. uv would obey it for build requirements too, and build those on this machine, with its
compiler and headers; so such a project gets its settings without that for them.
"""

from __future__ import annotations

import re
import tomllib
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import tomlkit
from packaging.utils import canonicalize_name

from px.env.artifacts import Artifact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.project.settings import Settings

# How uv starts a script: with the interpreter, or through a shell where its path is long or has spaces.
_START = re.compile(rb"#!(?:[^\n]*python[^\n]*\n|/bin/sh\n'{3}exec' [^\n]*\n' '{3}\n)")
# uv's words for a package of which the index has nothing but sources.
_SOURCES_ONLY = re.compile(r"([A-Za-z0-9][\w.-]*)\S* (?:has|have) no (?:usable )?wheels")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def without_wheels(complaint: str) -> frozenset[str]:
    """The packages that uv could not install because there is no wheel of them."""
    return frozenset(canonicalize_name(name) for name in _SOURCES_ONLY.findall(complaint))


def as_asked(requirements: Sequence[str], names: frozenset[str]) -> list[str]:
    """How the requirements ask for these packages; what only another requirement asks for may be of any version."""
    asked: dict[str, str] = {canonicalize_name(found[0]): r for r in requirements if (found := _NAME.match(r))}
    return [asked.get(name, name) for name in sorted(names)]


def sdists(pylock: str) -> list[Artifact]:
    """The sources that uv chose, from what ``uv pip compile`` prints."""
    found = [(row, row["sdist"]) for row in tomllib.loads(pylock).get("packages", ()) if "sdist" in row]
    return [_sdist(row["name"], row["version"], sdist) for row, sdist in found]


def _sdist(name: str, version: str, sdist: dict[str, Any]) -> Artifact:
    location = str(sdist.get("url") or sdist.get("path"))
    filename = sdist.get("name") or unquote(urlsplit(location).path).rpartition("/")[2]
    uploaded = sdist["upload-time"].astimezone(UTC).isoformat() if "upload-time" in sdist else ""
    sha256, size = sdist["hashes"]["sha256"], sdist.get("size")
    return Artifact(name, version, "sdist", location, sha256, size, filename, uploaded=uploaded)


def use_interpreter(scripts: Path, interpreter: str) -> None:
    """Have installed programs (meson, cython …) run by the sandbox's Python: uv wrote this machine's into them."""
    for script in sorted(scripts.iterdir()) if scripts.is_dir() else ():
        content = script.read_bytes()
        if found := _START.match(content):
            script.write_bytes(f"#!{interpreter}\n".encode() + content[found.end() :])


def settings_directory(settings: Settings, scratch: Path) -> Path:
    """The directory to run uv in: the project's, or one with its settings of places where those ask for builds."""
    if not settings.asks_for_builds:
        return settings.root
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "uv.toml").write_text(tomlkit.dumps(settings.places), encoding="utf-8")
    return scratch
