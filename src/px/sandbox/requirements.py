"""What builds require: it comes from where the project's uv settings say, and is built and run in the sandbox only.

A project may tell uv to build some packages from source (``no-binary-package``). That is meant for its env, where px
builds them in the sandbox. uv would obey it for build requirements too, and build those on this machine, with its
compiler and headers; so such a project gets its settings without that for them.
"""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from px.env.artifacts import Artifact
from px.env.credentials import read_settings
from px.sandbox.capabilities import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FROM_SOURCE = ("no-binary", "no-binary-package")
# What says where packages come from and how they are reached; a uv.toml may not have what describes the project.
_PLACES = ("default-index", "extra-index-url", "find-links", "index", "index-url")
_WAYS = ("allow-insecure-host", "index-strategy", "keyring-provider", "native-tls", "no-index", "system-certs")
# How uv starts a script: with the interpreter, or through a shell where its path is long or has spaces.
_START = re.compile(rb"#!(?:[^\n]*python[^\n]*\n|/bin/sh\n'{3}exec' [^\n]*\n' '{3}\n)")
# uv's words for a package of which the index has nothing but sources.
_SOURCES_ONLY = re.compile(r"([A-Za-z0-9][\w.-]*)\S* (?:has|have) no (?:usable )?wheels")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def without_wheels(complaint: str) -> frozenset[str]:
    """The packages that uv could not install because there is no wheel of them."""
    return frozenset(normalise(name) for name in _SOURCES_ONLY.findall(complaint))


def as_asked(requirements: Sequence[str], names: frozenset[str]) -> list[str]:
    """How the requirements ask for these packages; what only another requirement asks for may be of any version."""
    asked = {normalise(found[0]): r for r in requirements if (found := _NAME.match(r))}
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


def settings_directory(root: Path, scratch: Path) -> Path:
    """The directory to run uv in: the project's, or one with its settings of places where those ask for builds."""
    directory, settings = _nearest(root)
    own_pip = settings.get("pip", {})
    if not any(key in table for table in (settings, own_pip) for key in _FROM_SOURCE):
        return root
    import tomlkit

    kept = _places(settings, directory)
    if places := _places(own_pip, directory):
        kept["pip"] = places
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "uv.toml").write_text(tomlkit.dumps(kept), encoding="utf-8")
    return scratch


def extra_requirements(root: Path, name: str) -> list[str]:
    """What the project adds to a package's build requirements: ``[tool.uv.extra-build-dependencies]``, as for uv."""
    table = _nearest(root)[1].get("extra-build-dependencies", {})
    rows = [row for key, rows in table.items() if normalise(key) == normalise(name) for row in rows]
    return [str(row["requirement"] if isinstance(row, dict) else row) for row in rows]


def build_options(root: Path, name: str) -> dict[str, str]:
    """What the project tells a package's build, as variables: ``config-settings…``, ``extra-build-variables``."""
    settings = _nearest(root)[1]
    told = {**settings.get("config-settings", {}), **_of(settings.get("config-settings-package", {}), name)}
    variables = {key: str(value) for key, value in _of(settings.get("extra-build-variables", {}), name).items()}
    return {**variables, "PX_CONFIG_SETTINGS": json.dumps(told, sort_keys=True)} if told else variables


def _of(table: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for own, row in table.items() if normalise(own) == normalise(name) for key, value in row.items()}


def build_constraints(root: Path) -> list[str]:
    """What the project allows build requirements to be: ``[tool.uv] build-constraint-dependencies``, as for uv."""
    return [str(row) for row in _nearest(root)[1].get("build-constraint-dependencies", ())]


def from_source(root: Path, name: str) -> bool:
    """Whether the project wants this package built although it may have a wheel."""
    names = _nearest(root)[1].get("no-binary-package", ())
    return normalise(name) in map(normalise, names)


def _nearest(root: Path) -> tuple[Path, dict[str, Any]]:
    """The directory that has uv's settings for the project, and the settings."""
    found = ((directory, _settings(directory)) for directory in (root, *root.parents))
    return next(((d, s) for d, s in found if s), (root, {}))


def _settings(directory: Path) -> dict[str, Any]:
    """uv's settings in one directory: uv.toml, else the table of pyproject.toml, as uv looks for them."""
    for name in ("uv.toml", "pyproject.toml"):
        file = directory / name
        if file.is_file():
            table = read_settings(file)
            return table if name == "uv.toml" else table.get("tool", {}).get("uv", {})
    return {}


def _places(table: dict[str, Any], root: Path) -> dict[str, Any]:
    places = {key: _absolute(table[key], root) for key in _PLACES if key in table}
    return places | {key: table[key] for key in _WAYS if key in table}


def _absolute(value: Any, root: Path) -> Any:
    """The same place, seen from another directory: relative paths are made absolute."""
    if isinstance(value, list):
        return [_absolute(item, root) for item in value]
    if isinstance(value, dict):
        return {k: _absolute(v, root) if k == "url" else v for k, v in value.items()}
    return value if urlsplit(value).scheme else str((root / value).resolve())
