"""Asks archives for every pin of a lock, without downloading: which are gone from where."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.debian.download import Server
from px.http import FetchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.lock import BaseLock, PinnedPackage
    from px.debian.mirror import Mirror


@dataclass(frozen=True)
class Checked:
    """What one archive has of a lock."""

    archive: str
    is_snapshot: bool
    problem: str = ""
    """Why it could not be asked; then nothing is known to be gone."""
    gone: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()


def check(lock: BaseLock, mirror: Mirror) -> Checked:
    """Ask one archive for every pin; a snapshot archive as patiently as downloads do."""
    server = Server.of(mirror)
    packages = list(lock.packages.values())
    try:
        server.knock(mirror.url(packages[0].suite, packages[0].path))
    except FetchError as e:
        return Checked(mirror.main, mirror.is_snapshot, e.reason)
    with ThreadPoolExecutor(server.connections) as pool:
        answers = list(pool.map(lambda p: _status(server, mirror, p), packages))
    return Checked(
        mirror.main,
        mirror.is_snapshot,
        gone=_labels(packages, [status == 404 for status in answers]),
        unanswered=_labels(packages, [status not in (200, 404) for status in answers]),
    )


def _status(server: Server, mirror: Mirror, package: PinnedPackage) -> int:
    try:
        return server.ask(mirror.url(package.suite, package.path))
    except FetchError:
        return 0


def _labels(packages: Sequence[PinnedPackage], chosen: Sequence[bool]) -> tuple[str, ...]:
    return tuple(p.label for p, yes in zip(packages, chosen, strict=True) if yes)


def gone_everywhere(found: Sequence[Checked]) -> list[str]:
    """The pins that no archive has any more; an archive that could not be asked may have any of them."""
    if not found or any(one.problem for one in found):
        return []
    return sorted(set.intersection(*(set(one.gone) for one in found)))
