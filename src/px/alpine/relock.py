"""Makes the lock of an Alpine base.

Alpine's index has only the sha1 of a package's control part.  So px downloads every package, checks it from that hash
down to its files, and pins the sha256 of the whole file.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from px import console
from px.alpine.apk import read_apk, streams
from px.alpine.index import Index, Package, parse_index, solve
from px.alpine.signature import verify
from px.debian.archive import BadArchiveError
from px.debian.download import CONNECTIONS
from px.debian.lock import PinnedPackage
from px.debian.locking.release import UntrustedError
from px.debian.locking.relock import choose
from px.errors import PxError
from px.http import FetchError, Http
from px.platforms import machine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from px.debian.lock import BaseLock, Closure
    from px.debian.locking.relock import Seeds
    from px.debian.mirror import Mirror

T = TypeVar("T")
REPOSITORIES = ("main", "community")


class _MismatchError(Exception):
    """A package is not the one that the signed index names."""


@dataclass(frozen=True)
class Archive:
    """Where to read indexes and packages, which keys to trust, and which time it is."""

    mirrors: Sequence[Mirror]
    keys: Path
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    http: Http = field(default_factory=lambda: Http(connections=CONNECTIONS))
    unreachable: set[Mirror] = field(default_factory=set)
    """Those that are asked no more, because they did not answer once."""

    def get(self, path: str, read: Callable[[bytes], T]) -> T:
        """What ``read`` makes of the file, from the first mirror that has one that can be read.

        A mirror may be down, or in the middle of an update.  The error of the first one counts.
        """
        first: Exception | None = None
        # If none is left, the last one says why.
        for mirror in [m for m in self.mirrors if m not in self.unreachable] or self.mirrors[-1:]:
            try:
                return read(self.http.get(f"{mirror.main}/{path}"))
            except (FetchError, UntrustedError, BadArchiveError, _MismatchError, KeyError, ValueError) as e:
                console.detail(f"{console.redact(mirror.main)}/{path}: {getattr(e, 'reason', e)}")
                first = first or e
                if isinstance(e, FetchError) and e.unreachable:
                    self.unreachable.add(mirror)
        raise first or AssertionError("no mirrors")


def relock(archive: Archive, seeds: Seeds, architecture: str, capabilities: Mapping[str, Closure]) -> BaseLock:
    """Read the signed indexes, choose packages, download and check each of them, and pin it."""
    index = Index([p for repository in REPOSITORIES for p in _index(archive, seeds, repository, architecture)])
    chosen = choose(partial(solve, index), seeds, capabilities, absent=_leave_out)
    names = sorted(chosen.packages)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        found = list(pool.map(lambda name: _pin(archive, seeds, chosen.packages[name], architecture), names))
    # Alpine has no snapshot archive, so this is simply the time of locking.
    return chosen.lock(seeds, architecture, f"{archive.now:%Y%m%dT%H%M%SZ}", dict(zip(names, found, strict=True)))


def _leave_out(error: PxError) -> None:
    # px's table was written without this archive at hand.  Whoever asks for this capability gets PX901 then.
    console.warn(f"{error.what}. The lock is made without it.")


def _index(archive: Archive, seeds: Seeds, repository: str, architecture: str) -> list[Package]:
    path, machine = f"{seeds.codename}/{repository}", machine_of(architecture)

    def read(content: bytes) -> list[Package]:
        return parse_index(_signed_index(content, archive.keys), repository)

    try:
        return archive.get(f"{path}/{machine}/APKINDEX.tar.gz", read)
    except FetchError as e:
        raise _failure(archive, seeds, f"the index of {repository} cannot be fetched: {e.reason}", e) from e
    except (UntrustedError, BadArchiveError, KeyError, ValueError) as e:
        raise _failure(archive, seeds, f"the index of {repository} cannot be trusted: {e}") from e


def _signed_index(content: bytes, keys: Path) -> str:
    # The signature and the index.
    parts = streams(content)
    if len(parts) != 2:
        raise UntrustedError("it is not signed")
    verify(parts[0], parts[1], keys)
    return parts[1].files()["APKINDEX"].decode("utf-8")


def _pin(archive: Archive, seeds: Seeds, package: Package, architecture: str) -> PinnedPackage:
    path = f"{seeds.codename}/{package.repository}/{machine_of(architecture)}/{package.file_name}"
    try:
        size, digest = archive.get(path, partial(_checked, package))
    except FetchError as e:
        raise _failure(archive, seeds, f"{package.file_name} cannot be fetched: {e.reason}", e) from e
    except _MismatchError as e:
        problem = f"{package.file_name} is not the package that the signed index names"
        raise _failure(archive, seeds, problem) from e
    except (BadArchiveError, ValueError) as e:
        raise _failure(archive, seeds, f"{package.file_name} is damaged: {e}") from e
    machine = machine_of(architecture)
    return PinnedPackage(package.name, package.version, machine, path, size, digest, package.repository)


def _checked(package: Package, content: bytes) -> tuple[int, str]:
    """Size and sha256 of the package, which must be the one that the index names."""
    if len(content) != package.size:
        raise _MismatchError
    # This checks the files against the control part; then the control part is checked against the signed index.
    if read_apk(content).control_sha1 != package.control_sha1:
        raise _MismatchError
    return len(content), hashlib.sha256(content).hexdigest()


def _failure(archive: Archive, seeds: Seeds, problem: str, cause: FetchError | None = None) -> PxError:
    names = ", ".join(console.redact(mirror.main) for mirror in archive.mirrors)
    why = [f"px asked {names}, which PX_ALPINE_MIRROR names, and used nothing of it."]
    if cause is None or not cause.unreachable:
        return PxError("PX900", base=seeds.name, problem=problem, why=why)
    fix = ["Check the network, or name other mirrors: export PX_ALPINE_MIRROR=URL"]
    return PxError("PX900", base=seeds.name, problem=problem, why=why, fix=fix, whole_fix=True)
