"""Where px keeps what it makes: ``~/.px``, or ``PX_HOME``."""

from __future__ import annotations

from pathlib import Path

from px.project.fingerprint import home_root


class Home:
    """The directories under px's root; nothing else in px spells these names."""

    __slots__ = ("root",)

    def __init__(self, root: Path):
        self.root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Home) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __fspath__(self) -> str:
        return str(self.root)

    def __repr__(self) -> str:
        return f"Home({str(self.root)!r})"

    @classmethod
    def from_environment(cls) -> Home:
        return cls(Path(home_root()))

    @property
    def objects(self) -> Path:
        return self.root / "store" / "objects"

    @property
    def index(self) -> Path:
        """Input key -> oid: a cache, rebuilt from the objects when it is lost."""
        return self.root / "store" / "index"

    @property
    def tmp(self) -> Path:
        return self.root / "store" / "tmp"

    @property
    def locks(self) -> Path:
        return self.root / "store" / "locks"

    @property
    def cache(self) -> Path:
        """What can be thrown away at any time at the cost of being computed again."""
        return self.root / "cache"

    @property
    def refs(self) -> Path:
        """One file per project that px has built an env or image for: the roots of garbage collection."""
        return self.root / "refs"

    @property
    def envs(self) -> Path:
        return self.root / "envs"

    @property
    def sandbox(self) -> Path:
        return self.root / "sandbox"
