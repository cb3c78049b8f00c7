"""Debian's real archive, republished on loopback under a key of the test's, which may add newer packages.

The packages themselves come from the real mirror, when they are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from px.debian.deb822 import parse_stanza
from px.debian.lock import BaseLock
from px.debian.locking import relock as relocking
from px.debian.locking.relock import POCKETS, Archive
from px.debian.mirror import Mirror as Source
from px.debian.mirror import mirrors
from px.http import FetchError, Http
from px.store.objects import Store
from px.store.sources import find_source
from tests.support.debian import Mirror, SignedArchive, serving


class _Pool(dict[str, bytes]):
    """The files of the mirror, and those of the real one behind it."""

    def __init__(self, store: Store, hashes: dict[str, str], upstream: Source):
        super().__init__()
        self.store, self.hashes, self.upstream = store, hashes, upstream

    def get(self, path: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        if path not in self and path.startswith("pool/"):
            known = find_source(self.store, self.hashes.get(path, "none"))
            if known is not None:
                return known.read_bytes()
            for root in (self.upstream.main, self.upstream.security):
                try:
                    self[path] = Http().get(f"{root}/{path}")
                    break
                except FetchError:
                    continue
        return super().get(path, default)


@dataclass
class Resigned:
    """The mirror, its key, and the stanzas that it publishes for each pocket."""

    mirror: Mirror
    archive: SignedArchive
    architecture: str
    stanzas: dict[str, list[str]] = field(default_factory=dict)

    def publish(self) -> None:
        self.archive.publish(self.mirror, self.stanzas, self.architecture)

    def add(self, name: str, version: str, content: bytes, pocket: str = "-security") -> str:
        """Publish a newer version of a package and return its path."""
        known = next(s for rows in self.stanzas.values() for s in rows if s.startswith(f"Package: {name}\n"))
        path = f"pool/updates/main/{name}_{version.replace(':', '%3a')}_{self.architecture}.deb"
        changed = {"Version": version, "Filename": path, "Size": str(len(content))}
        fields = parse_stanza(known) | changed | {"SHA256": hashlib.sha256(content).hexdigest()}
        self.stanzas.setdefault(pocket, []).append("\n".join(f"{k}: {v}" for k, v in fields.items()))
        self.mirror.files[path] = content
        self.publish()
        return path


@contextmanager
def resigned(lock: BaseLock, store: Store, keyring: Path) -> Iterator[Resigned]:
    """Serve what the real archive has of the packages of a lock."""
    archive = Archive(mirrors("")[0])
    hashes = {p.path: p.sha256 for p in lock.packages.values()}
    with serving(Mirror(files=_Pool(store, hashes, archive.mirror))) as mirror:
        found = Resigned(mirror, SignedArchive(lock.codename), lock.architecture)
        for pocket in POCKETS:
            _, text = relocking._suite(archive, lock.codename + pocket, lock.architecture, lock.name)
            wanted = [s for s in text.split("\n\n") if s.partition("\n")[0].removeprefix("Package: ") in lock.packages]
            found.stanzas[pocket] = wanted
        found.publish()
        found.archive.keyring(keyring)
        yield found
