"""The directory in which px keeps everything that it makes: ``~/.px``, or ``PX_HOME``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from px.warm.record import home_root

CACHES = {
    "advisories": "advisories",  # what an audit has fetched
    "archives": "archives",  # images as docker and podman load them
    "build-needs": "build-needs",  # what the builds of packages were found to ask for
    "editables": "editables",  # the files that an editable install adds to site-packages
    "elf": "elf-1",  # what the ELF files of an object need; 1 is the version of the format
    "engines": "engines",  # which engine works on this machine, and layers with empty mount points
    "interpreters": "interpreters",  # version and platform of the Pythons on this machine
    "metaflow": "metaflow",  # byte code of Metaflow's own packages
    "packages": "packages-1",  # what is in a Debian package, and which layers have the files
    "registries": "registries",  # which blobs px has sent to a registry
    "selections": "selections",  # which artifacts of a lock a runtime gets
    "sonames": "sonames-1",  # the libraries of a base
    "uv": "uv",  # what uv in sandboxes has downloaded: one directory for wheels, and one for each project
}
"""Every cache and its directory.  Garbage collection removes old entries from all of them, except those in ``KEPT``."""
# The engines' cache is small, and running sandboxes may have a layer of it mounted.
KEPT = frozenset({"engines"})


@dataclass(frozen=True)
class Home:
    """The directories under px's root.  All code in px takes these paths from here."""

    root: Path

    # So that a Home can stand where a path is expected.
    def __fspath__(self) -> str:
        return str(self.root)

    @classmethod
    def from_environment(cls) -> Home:
        return cls(Path(home_root()))

    @property
    def objects(self) -> Path:
        return self.root / "store" / "objects"

    @property
    def index(self) -> Path:
        """Input key -> oid.  This is a cache; ``px store verify`` rebuilds it from the objects."""
        return self.root / "store" / "index"

    @property
    def tmp(self) -> Path:
        return self.root / "store" / "tmp"

    @property
    def locks(self) -> Path:
        return self.root / "store" / "locks"

    def cache(self, name: str) -> Path:
        """The directory of one cache.  It may be deleted at any time; px computes what it needs again."""
        return self.root / "cache" / CACHES[name]

    @property
    def refs(self) -> Path:
        """One record for each project with an env or image.  They are the roots of garbage collection."""
        return self.root / "refs"

    @property
    def logs(self) -> Path:
        """What px decided while it built, one file for each project.  Not in the project, where targets could write."""
        return self.root / "logs"

    @property
    def caches(self) -> Path:
        """One directory for each project's sandbox, written by it alone (:mod:`px.warm.start`)."""
        return self.root / "caches"

    @property
    def envs(self) -> Path:
        return self.root / "envs"

    @property
    def bases(self) -> Path:
        """Locks of bases that px ships none of (:mod:`px.sandbox.layers.base`)."""
        return self.root / "bases"

    @property
    def sandbox(self) -> Path:
        return self.root / "sandbox"
