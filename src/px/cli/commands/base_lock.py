"""``px base lock``: pin a base anew (for px's maintainers)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.debian.lock import BaseLock
    from px.debian.relock import Seeds

SUMMARY = "Pin a base anew from the archive's signed index (for px's maintainers)"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="+", metavar="NAME", help="the base, such as debian-12")
    parser.add_argument(
        "--architecture", action="append", metavar="NAME", help="only this one (amd64, arm64); repeatable"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the lock there; PX_BASES=DIR makes px read it")
    parser.add_argument("--dry-run", action="store_true", help="print what would change and write nothing")


def main(args: argparse.Namespace, context: Context) -> int:
    from px.errors import PxError
    from px.sandbox.bases import locks_directory

    directory: Path = args.out if args.out is not None else locks_directory()
    changes: dict[str, object] = {}
    for name in args.name:
        seeds = _seeds(name)
        if context.offline:
            raise PxError("PX900", base=name, problem="it cannot be locked offline", fix=["Run it without --offline."])
        for architecture in _architectures(seeds, args.architecture):
            lines = _relock(seeds, architecture, directory, dry_run=args.dry_run)
            changes[f"{name}-{architecture}"] = lines
            if not context.json:
                print("\n".join([f"{name} {architecture}: {len(lines)} changes", *(f"  {line}" for line in lines)]))
    context.emit(f"{len(changes)} locks", {"directory": str(directory), "changes": changes})
    return 0


def _seeds(name: str) -> Seeds:
    from px.debian.relock import ALPINE_SEEDS, load_seeds
    from px.sandbox.bases import unknown_base

    known = load_seeds() | load_seeds(ALPINE_SEEDS)
    if name not in known:
        raise unknown_base(name, tuple(known))
    return known[name]


def _architectures(seeds: Seeds, wanted: list[str] | None) -> tuple[str, ...]:
    from px.errors import PxError

    for name in wanted or ():
        if name not in seeds.architectures:
            raise PxError("PX900", base=seeds.name, problem=f"px does not make it for {name}")
    return tuple(wanted or seeds.architectures)


def _relock(seeds: Seeds, architecture: str, directory: Path, *, dry_run: bool) -> list[str]:
    from px.debian.lock import encode, file_name
    from px.debian.relock import differences
    from px.sandbox.bases import is_alpine
    from px.store.files import disk_errors, write_atomically

    lock = _alpine(seeds, architecture) if is_alpine(seeds.name) else _debian(seeds, architecture)
    lines = differences(_previous(directory, seeds.name, architecture), lock)
    if not dry_run:
        with disk_errors(directory):
            write_atomically(directory / file_name(seeds.name, architecture), encode(lock))
    return lines


def _debian(seeds: Seeds, architecture: str) -> BaseLock:
    from datetime import UTC, datetime

    from px import console
    from px.debian.mirror import mirrors
    from px.debian.relock import load_capability_seeds, relock
    from px.http import Http

    mirror = mirrors(f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}")[0]
    console.info(f"Locking {seeds.name} for {architecture} from {mirror.origin} …")
    return relock(Http(), mirror, seeds, architecture, load_capability_seeds(seeds.name))


def _alpine(seeds: Seeds, architecture: str) -> BaseLock:
    from datetime import UTC, datetime

    from px import console
    from px.alpine import relock as alpine
    from px.debian.relock import load_capability_seeds
    from px.http import Http

    mirror, keys = alpine.mirror(seeds.name), alpine.keys_directory(seeds.name)
    console.info(f"Locking {seeds.name} for {architecture} from {mirror.origin} …")
    capabilities = load_capability_seeds(seeds.name)
    return alpine.relock(Http(), mirror, seeds, architecture, capabilities, keys, datetime.now(UTC))


def _previous(directory: Path, name: str, architecture: str) -> BaseLock | None:
    """The lock that is replaced: the one in the directory, else the one that px uses now."""
    from px.debian.lock import read
    from px.sandbox.bases import locks_directory

    for place in (directory, locks_directory()):
        try:
            return read(place, name, architecture)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue
    return None
