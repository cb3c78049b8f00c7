"""Empty directories and files over which the sandbox's own are mounted, owned by whoever runs px.

Only used with layers of another user, such as a store that an administrator fills for everybody.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from px.store.files import disk_errors
from px.store.tree import remove_tree
from px.warm import arguments
from px.warm.links import Layers

if TYPE_CHECKING:
    from pathlib import Path

    from px.warm.spec import RunSpec


def ensure_skeleton(root: Path, spec: RunSpec) -> Path:
    """A layer with every place that ``spec`` needs; one per set of places, kept for the next run."""
    resolve = Layers(spec.layers).resolve
    files = sorted({resolve(f.target) for f in arguments.files(spec)})
    directories = sorted({resolve(d) for d in ("/proc", "/dev", "/sys", "/tmp", "/run", "/var/tmp", spec.home)})  # noqa: S108
    for mount in (m for m in spec.mounts if not m.own):  # those lie in another mount
        (directories if os.path.isdir(mount.source) else files).append(resolve(mount.target))
    layer = root / hashlib.sha256("\0".join([*files, "", *directories]).encode()).hexdigest()[:16]
    if not layer.is_dir():
        with disk_errors(root):
            _make(layer, files, directories)
    return layer


def _make(layer: Path, files: list[str], directories: list[str]) -> None:
    draft = layer.with_name(f"{layer.name}.{os.urandom(6).hex()}")
    for name in directories:
        (draft / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in files:
        path = draft / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for directory in [draft, *(path for path in draft.rglob("*") if path.is_dir())]:
        directory.chmod(0o555)  # as in the store: the target may not write there
    try:
        draft.rename(layer)
    except OSError:
        remove_tree(draft)  # another px was faster
        if not layer.is_dir():
            raise
