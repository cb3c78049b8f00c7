"""What px remembers of a project: for which manifests and lock its envs were built.

One JSON file per project under ``PX_HOME/refs``, outside the project, so that a read-only working tree can
be used and so that garbage collection finds its roots in one place.  The record is also the warm path: a
``px run`` whose files have not changed needs nothing but this file and a few ``stat`` calls, so this
module imports only what that path needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from px.home import Home

VERSION = 1
# A file that was written this recently can change again without its time showing it.
_RACY_NS = 2_000_000_000


@dataclass(frozen=True)
class BuiltEnv:
    """An env as it was built: from which inputs, with which selection, and where it is."""

    inputs: str
    selection: dict[str, Any]
    profile: str
    env: str
    """The host env's directory, or the sandbox image's id."""
    variables: dict[str, str] = field(default_factory=dict)
    objects: tuple[str, ...] = ()
    """``kind/oid`` of every object that the env was made from."""

    def as_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "selection": self.selection,
            "profile": self.profile,
            "env": self.env,
            "variables": self.variables,
            "objects": list(self.objects),
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> BuiltEnv:
        return cls(raw["inputs"], raw["selection"], raw["profile"], raw["env"], raw["variables"], tuple(raw["objects"]))


@dataclass
class Record:
    """The record of one project; :meth:`save` writes it whole."""

    path: Path
    root: Path
    members: list[str] = field(default_factory=list)
    """Member directories relative to the root, as they were found."""
    patterns: list[str] = field(default_factory=list)
    inputs: dict[str, list[Any]] = field(default_factory=dict)
    """Relative path -> [size, mtime, ctime, inode, sha256], or [] where the file is not there."""
    recorded_at: int = 0
    locked: str = ""
    """The digest of the inputs for which the lock was found to match the manifest."""
    envs: dict[str, BuiltEnv] = field(default_factory=dict)

    def digest(self, paths: Iterable[str]) -> str:
        """One hash over the content of the inputs, reading only those that may have changed."""
        seen: dict[str, list[Any]] = {}
        for name in sorted(paths):
            seen[name] = self._look(name)
        self.inputs = seen
        text = json.dumps([[name, entry[4] if entry else None] for name, entry in seen.items()])
        return hashlib.sha256(text.encode()).hexdigest()

    def _look(self, name: str) -> list[Any]:
        path = os.path.join(self.root, name)
        try:
            st = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        signature = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]
        known = self.inputs.get(name)
        if known and known[:4] == signature and st.st_mtime_ns < self.recorded_at - _RACY_NS:
            return known
        with open(path, "rb") as f:
            return [*signature, hashlib.sha256(f.read()).hexdigest()]

    def save(self) -> None:
        from px.store.files import write_json

        self.recorded_at = time.time_ns()
        write_json(
            self.path,
            {
                "version": VERSION,
                "root": str(self.root),
                "members": self.members,
                "patterns": self.patterns,
                "inputs": self.inputs,
                "recorded_at": self.recorded_at,
                "locked": self.locked,
                "envs": {name: env.as_json() for name, env in self.envs.items()},
            },
            durable=False,
        )


def record_path(home: Home, root: Path) -> Path:
    return record_path_beside(home.refs / "record", root)


def record_path_beside(path: Path, root: Path) -> Path:
    """The record of another project, in the home that ``path`` is in."""
    return path.with_name(hashlib.sha256(os.fsencode(root)).hexdigest()[:40] + ".json")


def load(home: Home, root: Path) -> Record:
    """The record of the project at ``root``; an empty one if there is none, or none that can be read."""
    path = record_path(home, root)
    found = load_file(path)
    return found if found is not None and found.root == root else Record(path, root)


def load_file(path: Path) -> Record | None:
    try:
        raw = json.loads(path.read_bytes())
        if raw["version"] != VERSION:
            return None
        return Record(
            path=path,
            root=Path(raw["root"]),
            members=raw["members"],
            patterns=raw["patterns"],
            inputs=raw["inputs"],
            recorded_at=raw["recorded_at"],
            locked=raw["locked"],
            envs={name: BuiltEnv.from_json(env) for name, env in raw["envs"].items()},
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        # A record is a cache: what cannot be read is made again.
        return None
