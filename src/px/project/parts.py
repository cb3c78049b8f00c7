"""What an env is made from, part by part: of a manifest what it says and not its bytes, of other files their content.

A comment, or a setting of a linter, makes no env stale.  The sandbox's own table is a part of its own, because the
env of this machine is not made from it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from px import bounds
from px.project.manifest import FILE
from px.warm.record import SANDBOX_TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.project.discovery import Project

# Tables that no build backend reads.
_OF_NO_BUILD = ("black", "coverage", "isort", "mypy", "pylint", "pyright", "pytest", "ruff")
# What px reads anew every time that it needs it.
_OF_NO_ENV = ("sandbox", "test")
_OF_NO_IMAGE = ("exclude", "gpu", "network")


def parts(project: Project, seen: Mapping[str, list[Any]]) -> dict[str, str]:
    """The name of each part -> its hash; ``seen`` has the files, as a record looks at them."""
    found = {name: _hash_of_file(project, name, entry) for name, entry in seen.items() if entry}
    table = project.manifest.tool("px").get("sandbox")
    if isinstance(table, dict):
        counting = {key: value for key, value in table.items() if key not in _OF_NO_IMAGE}
        found |= {SANDBOX_TABLE: _hash(counting)} if counting else {}
    return found


def _hash_of_file(project: Project, name: str, entry: list[Any]) -> str:
    if name.rpartition("/")[2] == FILE:
        try:
            return _hash(_counting(bounds.read_toml(project.root / name)))
        except (OSError, ValueError, AttributeError):
            pass  # not ours, or wrong in a way that others will say: its bytes count
    return str(entry[4])


def _counting(document: dict[str, Any]) -> dict[str, Any]:
    """A manifest without what nothing is built from; a table that is empty then is as good as none."""
    tool = {name: table for name, table in document.get("tool", {}).items() if name not in _OF_NO_BUILD}
    if "px" in tool:
        tool["px"] = {key: value for key, value in tool["px"].items() if key not in _OF_NO_ENV}
    return {**document, "tool": {name: table for name, table in tool.items() if table != {}}}


def _hash(value: object) -> str:
    # str for the dates that TOML has and JSON has not.
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def digest(found: Mapping[str, str]) -> str:
    """One hash over all parts but the sandbox's table: what the lock and the choice of packages depend on."""
    return _hash({name: value for name, value in found.items() if name != SANDBOX_TABLE})
