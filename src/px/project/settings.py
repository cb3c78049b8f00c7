"""uv's settings for a project, read once, by the rules that uv has.

In a directory, ``uv.toml`` counts before the table ``[tool.uv]`` of ``pyproject.toml``, and the nearest directory that
has either decides for the project.  The user's and the system's ``uv.toml`` come after it.  px takes from those only
how indexes are reached; what changes the packages themselves is taken from the project alone, so that it is the same
on every machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from px import bounds
from px.errors import PxError

_FROM_SOURCE = ("no-binary", "no-binary-package")
# What says where packages come from and how they are reached; a uv.toml may not have what describes the project.
_PLACES = ("default-index", "extra-index-url", "find-links", "index", "index-url")
_WAYS = ("allow-insecure-host", "index-strategy", "keyring-provider", "native-tls", "no-index", "system-certs")


@dataclass(frozen=True)
class Settings:
    """What uv is told about one project."""

    root: Path

    @cached_property
    def _nearest(self) -> tuple[Path, dict[str, Any]]:
        found = ((directory, _in_directory(directory)) for directory in (self.root, *self.root.parents))
        return next(((d, table) for d, table in found if table), (self.root, {}))

    @property
    def directory(self) -> Path:
        """Where the project's own settings were found."""
        return self._nearest[0]

    @property
    def project(self) -> dict[str, Any]:
        """The project's own settings."""
        return self._nearest[1]

    @cached_property
    def tables(self) -> tuple[dict[str, Any], ...]:
        """Everything that says how indexes are reached, strongest first: the project's, the user's, the system's."""
        explicit = os.environ.get("UV_CONFIG_FILE")
        if explicit:
            return (read_toml(Path(explicit)),)
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return (self.project, read_toml(config / "uv" / "uv.toml"), read_toml(Path("/etc/uv/uv.toml")))

    # --- what is built ------------------------------------------------------------------------------------------

    def from_source(self, name: str) -> bool:
        """Whether the project wants this package built although it may have a wheel."""
        from packaging.utils import canonicalize_name

        names = map(canonicalize_name, self.project.get("no-binary-package", ()))
        return self.project.get("no-binary") is True or canonicalize_name(name) in names

    @property
    def build_constraints(self) -> list[str]:
        """What the project allows build requirements to be: ``build-constraint-dependencies``."""
        return [str(row) for row in self.project.get("build-constraint-dependencies", ())]

    def extra_requirements(self, name: str) -> list[str]:
        """What the project adds to a package's build requirements: ``extra-build-dependencies``."""
        rows = [row for rows in self._rows("extra-build-dependencies", name) for row in rows]
        return [str(row["requirement"] if isinstance(row, dict) else row) for row in rows]

    def build_variables(self, name: str) -> dict[str, str]:
        """What the project tells a package's build, as variables: ``config-settings…``, ``extra-build-variables``."""
        told = {**self.project.get("config-settings", {}), **self._of("config-settings-package", name)}
        variables = {key: str(value) for key, value in self._of("extra-build-variables", name).items()}
        for key, value in variables.items():
            if not key or "=" in key or "\0" in key + value:
                problem = f"extra-build-variables has a variable that cannot exist: {key!r}"
                raise PxError("PX003", path=self.root / "pyproject.toml", problem=problem)
        return {**variables, "PX_CONFIG_SETTINGS": json.dumps(told, sort_keys=True)} if told else variables

    def _of(self, key: str, name: str) -> dict[str, Any]:
        """The rows of a table of packages that are for this one, together."""
        return {k: v for row in self._rows(key, name) for k, v in row.items()}

    def _rows(self, key: str, name: str) -> list[Any]:
        table = self.project.get(key, {})
        if not table:
            return []
        from packaging.utils import canonicalize_name

        return [row for own, row in table.items() if canonicalize_name(own) == canonicalize_name(name)]

    # --- where it comes from --------------------------------------------------------------------------------------

    @property
    def asks_for_builds(self) -> bool:
        """Whether the project tells uv to build packages from source."""
        return any(key in table for table in (self.project, self.project.get("pip", {})) for key in _FROM_SOURCE)

    @property
    def places(self) -> dict[str, Any]:
        """The settings that say where packages come from, and no others, for a ``uv.toml`` in another directory."""
        directory, table = self._nearest
        kept = _places(table, directory)
        own_pip = _places(table.get("pip", {}), directory)
        return kept | ({"pip": own_pip} if own_pip else {})


def read_toml(path: Path) -> dict[str, Any]:
    """A file of uv's; what cannot be read says nothing: uv itself complains."""
    try:
        return bounds.read_toml(path)
    except (OSError, ValueError):
        return {}


def _in_directory(directory: Path) -> dict[str, Any]:
    own = directory / "uv.toml"
    if own.is_file():
        return read_toml(own)
    table: dict[str, Any] = read_toml(directory / "pyproject.toml").get("tool", {}).get("uv", {})
    return table


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
