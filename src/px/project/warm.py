"""The warm path: an env that was built from exactly the files that are here now.

Nothing is parsed but the project's record; everything that is not a plain yes is left to the full look in
:mod:`px.project.situation`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px.project import record as records

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home
    from px.project.record import BuiltEnv, Record

MARKERS = {"host": "px-env.json", "sandbox": "manifest.json"}
_MANIFEST = "pyproject.toml"


def find(home: Home, directory: Path, target: str) -> tuple[Path, BuiltEnv] | None:
    """The root and env of the project around ``directory``, if it is certainly Consistent."""
    nearest: Path | None = None
    for here in (directory, *directory.parents):
        if not os.path.isfile(os.path.join(here, _MANIFEST)):
            continue
        nearest = nearest or here
        record = records.load_file(records.record_path(home, here))
        if record is None or record.root != here:
            continue
        if here != nearest and os.path.relpath(nearest, here) not in record.members:
            continue
        built = _consistent(record, target)
        return None if built is None else (here, built)
    return None


def _consistent(record: Record, target: str) -> BuiltEnv | None:
    built = record.envs.get(target)
    if built is None or not exists(built, target) or _members_changed(record):
        return None
    digest = record.digest(record.inputs)
    return built if digest == built.inputs == record.locked else None


def exists(built: BuiltEnv, target: str) -> bool:
    """Whether the env is complete where the record says; a host env needs its interpreter too."""
    there = os.path.exists(os.path.join(built.env, MARKERS[target]))
    return there and (target != "host" or os.path.exists(os.path.join(built.env, "bin", "python")))


def _members_changed(record: Record) -> bool:
    if not record.patterns:
        return False
    from px.project.manifest import WorkspaceTable

    split = record.patterns.index("--")
    table = WorkspaceTable(tuple(record.patterns[:split]), tuple(record.patterns[split + 1 :]))
    return member_names(record.root, table.expand(record.root)) != record.members


def member_names(root: Path, directories: tuple[Path, ...]) -> list[str]:
    return [os.path.relpath(d, root) for d in directories if d != root]
