"""What builds require: it comes from where the project's uv settings say, and is built and run in the sandbox only.

A project may tell uv to build some packages from source (``no-binary-package``). That is meant for its env, where px
builds them in the sandbox. uv would obey it for build requirements too, and build those on this machine, with its
compiler and headers; so such a project gets its settings without that for them.
"""

from __future__ import annotations

import os
import re
import tomllib
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import tomlkit
from packaging.utils import canonicalize_name

from px.env.artifacts import Artifact
from px.sandbox.uv_places import indexes
from px.warm.spec import Mount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.project.context import Context

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


def shown_settings(context: Context, given: Path) -> tuple[Path, list[Mount]]:
    """Where uv is to run, and what it must see for the project's settings to count there."""
    settings = context.settings
    if settings.asks_for_builds:
        (given / "uv.toml").write_text(tomlkit.dumps(settings.places), encoding="utf-8")
        return Path("/build/given"), indexes(context)
    files = [settings.directory / name for name in ("uv.toml", "pyproject.toml")]
    shown = [Mount(path, os.fspath(path), read_only=True) for path in files if path.is_file()]
    return settings.directory, [*shown, *indexes(context)]
