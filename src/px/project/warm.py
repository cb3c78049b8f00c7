"""The warm path: an env that was built from exactly the files that are here now.

Nothing is parsed but the project's record, and nothing heavy is imported; everything that is not a plain
yes is left to the full look in :mod:`px.project.situation`.
"""

import os

from px.project.fingerprint import home_root, made_alike, matching, read, record_name, unchanged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARKERS = {"host": "px-env.json", "sandbox": "manifest.json"}


def find(directory: str, target: str) -> "tuple[str, dict[str, Any]] | None":
    """The root and the built env of the project around ``directory``, if it is certainly Consistent."""
    raw = find_record(directory, target)
    return None if raw is None else (raw["root"], raw["envs"][target])


def find_record(directory: str, target: str) -> "dict[str, Any] | None":
    """The record of the project around ``directory``, if its env is certainly Consistent."""
    refs = os.path.join(home_root(), "refs")
    nearest, here = "", directory
    while True:
        if os.path.isfile(os.path.join(here, "pyproject.toml")):
            nearest = nearest or here
            raw = read(os.path.join(refs, record_name(here)))
            if raw is not None and raw["root"] == here and (here == nearest or _is_member(raw, nearest)):
                built = raw["envs"].get(target)
                return raw if built and _consistent(raw, built, target) else None
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def _is_member(raw: "dict[str, Any]", nearest: str) -> bool:
    return os.path.relpath(nearest, raw["root"]) in raw["members"]


def _consistent(raw: "dict[str, Any]", built: "dict[str, Any]", target: str) -> bool:
    return (
        built["inputs"] == raw["locked"]
        and made_alike(built, raw["recorded_at"])
        and exists(built["env"], target)
        and not _members_changed(raw)
        and not _files_appeared(raw)
        and unchanged(raw)
    )


def exists(env: str, target: str) -> bool:
    """Whether the env is complete where the record says; a host env needs its interpreter too."""
    there = os.path.exists(os.path.join(env, MARKERS[target]))
    return there and (target != "host" or os.path.exists(os.path.join(env, "bin", "python")))


def _members_changed(raw: "dict[str, Any]") -> bool:
    patterns = raw["patterns"]
    if not patterns:
        return False
    from pathlib import Path

    from px.project.manifest import WorkspaceTable

    split, root = patterns.index("--"), Path(raw["root"])
    table = WorkspaceTable(tuple(patterns[:split]), tuple(patterns[split + 1 :]))
    found = [os.path.relpath(d, root) for d in table.expand(root) if d != root]
    return bool(found != raw["members"])


def _files_appeared(raw: "dict[str, Any]") -> bool:
    for directory, pattern in raw["globs"]:
        there = os.path.join(raw["root"], directory)
        for name in matching(there, pattern):
            if os.path.relpath(os.path.join(there, name), raw["root"]) not in raw["inputs"]:
                return True
    return False
