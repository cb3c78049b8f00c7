"""What px remembers of a project: for which manifests and lock its envs were built.

One JSON file per project under ``PX_HOME/refs``, outside the project, so that a read-only working tree can
be used and so that garbage collection finds its roots in one place.  The warm path reads the same file
through :mod:`px.project.fingerprint`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from px import __version__
from px.project import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from px.home import Home


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
    layers: tuple[str, ...] = ()
    """For the sandbox: the trees of the image, lowest first, the project's own on top."""
    details: dict[str, str] = field(default_factory=dict)
    """For the sandbox: what messages and error hints need to know without reading the image."""
    made_by: str = __version__
    """The px that built it."""
    tables: dict[str, list[Any]] = field(default_factory=dict)
    """For the sandbox: those of px's own tables that it was derived from, as :attr:`Record.inputs` has files."""

    def as_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "selection": self.selection,
            "profile": self.profile,
            "env": self.env,
            "variables": self.variables,
            "objects": list(self.objects),
            "layers": list(self.layers),
            "details": self.details,
            "made_by": self.made_by,
            "tables": self.tables,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> BuiltEnv:
        return cls(**raw | {"objects": tuple(raw["objects"]), "layers": tuple(raw["layers"])})


@dataclass
class Record:
    """The record of one project; :meth:`save` writes it whole."""

    path: Path
    root: Path
    members: list[str] = field(default_factory=list)
    """Member directories relative to the root, as they were found."""
    patterns: list[str] = field(default_factory=list)
    globs: list[list[str]] = field(default_factory=list)
    """Directory relative to the root, and pattern: what matches is an input."""
    inputs: dict[str, list[Any]] = field(default_factory=dict)
    """Relative path -> [size, mtime, ctime, inode, sha256], or [] where the file is not there."""
    recorded_at: int = 0
    locked: str = ""
    """The digest of the inputs for which the lock was found to match the manifest."""
    envs: dict[str, BuiltEnv] = field(default_factory=dict)
    name: str = ""

    def digest(self, names: Iterable[str]) -> str:
        """One hash over the content of the inputs, reading only those that may have changed."""
        root, known = os.fspath(self.root), self.inputs
        self.inputs = {n: fingerprint.look(root, n, known.get(n), self.recorded_at) for n in sorted(names)}
        return fingerprint.digest(self.inputs.items())

    def save(self) -> None:
        from px.store.files import write_json

        self.recorded_at = time.time_ns()
        write_json(
            self.path,
            {
                "version": fingerprint.VERSION,
                "root": str(self.root),
                "members": self.members,
                "patterns": self.patterns,
                "globs": self.globs,
                "inputs": self.inputs,
                "recorded_at": self.recorded_at,
                "locked": self.locked,
                "envs": {name: env.as_json() for name, env in self.envs.items()},
                "name": self.name,
            },
            durable=False,
        )


def record_path(home: Home, root: Path) -> Path:
    return home.refs / fingerprint.record_name(os.fspath(root))


def load(home: Home, root: Path) -> Record:
    """The record of the project at ``root``; an empty one if there is none that can be read."""
    path = record_path(home, root)
    raw = fingerprint.read(os.fspath(path))
    try:
        if raw is None or raw["root"] != os.fspath(root):
            return Record(path, root)
        envs = {name: BuiltEnv.from_json(env) for name, env in raw["envs"].items()}
        seen = raw["members"], raw["patterns"], raw["globs"], raw["inputs"], raw["recorded_at"], raw["locked"]
        return Record(path, root, *seen, envs, raw.get("name", ""))
    except (KeyError, TypeError, AttributeError):
        return Record(path, root)  # a record is a cache: what cannot be read is made again
