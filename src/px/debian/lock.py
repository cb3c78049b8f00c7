"""Base locks: the packages of a base, of its capabilities and of its compiler set, each with its sha256.

There is one JSON file for each base and architecture.  It has one line for each package, so that a diff of two locks
is easy to read.  A closure only lists names; ``packages`` has version, path and hash of each name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMAT = 1
# A lock may be a project's own file.  Its words become parts of addresses and of file names in the store.
_ROW = tuple(
    re.compile(pattern)
    for pattern in (
        r"[A-Za-z0-9][A-Za-z0-9+._-]*",
        r"[\w.+:~-]+",
        r"[a-z0-9_-]+",
        r"(?!.*\.\./)[^/?#\s][^?#\s]*",
        r"\d+",
        r"[0-9a-f]{64}",
        r"[a-z0-9.-]+",
    )
)


# The order of the fields is that of a row in the file, and packages are sorted by it.
@dataclass(frozen=True, order=True)
class PinnedPackage:
    """One .deb or .apk: its name, its path in an archive, and its size and hash."""

    name: str
    version: str
    architecture: str
    path: str
    size: int
    sha256: str
    suite: str

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Closure:
    """The packages that a capability adds to the base: to run programs, and to build packages against it."""

    runtime: tuple[str, ...] = ()
    build: tuple[str, ...] = ()


@dataclass(frozen=True)
class BaseLock:
    """The lock of one base on one architecture."""

    name: str
    architecture: str
    variant: str
    px_base_version: int
    codename: str
    date: str
    """A time at which the snapshot archive has these packages, such as 20261114T000000Z."""
    packages: Mapping[str, PinnedPackage] = field(repr=False)
    base: tuple[str, ...] = field(repr=False)
    compiler: tuple[str, ...] = field(repr=False)
    capabilities: Mapping[str, Closure] = field(repr=False)
    older: tuple[str, ...] = ()
    """Further dates, for packages that were kept when others were updated."""
    pins: Path | None = field(default=None, repr=False, compare=False)
    """The project's file that has this lock; None for px's own."""

    @property
    def is_alpine(self) -> bool:
        return self.name.startswith("alpine-")

    def pinned(self, names: Iterable[str]) -> tuple[PinnedPackage, ...]:
        """The pins of these packages, sorted by name."""
        return tuple(self.packages[name] for name in sorted(set(names)))


def encode(lock: BaseLock) -> bytes:
    """The content of a lock file.  The same lock always gives the same bytes."""
    # Not json.dumps for the whole: with indent it would write each field of a package on a line of its own.
    head = {
        "format": FORMAT,
        "name": lock.name,
        "architecture": lock.architecture,
        "variant": lock.variant,
        "px_base_version": lock.px_base_version,
        "codename": lock.codename,
        "date": lock.date,
        **({"older": list(lock.older)} if lock.older else {}),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = [
        f"  {json.dumps(p.name)}: {json.dumps([p.version, p.architecture, p.path, p.size, p.sha256, p.suite])}"
        for p in lock.pinned(lock.packages)
    ]
    closures = [
        f"  {json.dumps(name)}: {json.dumps({'runtime': list(c.runtime), 'build': list(c.build)})}"
        for name, c in sorted(lock.capabilities.items())
    ]
    lines += [f'"base": {json.dumps(list(lock.base))},', f'"compiler": {json.dumps(list(lock.compiler))},']
    lines += ['"capabilities": {', ",\n".join(closures), "},", '"packages": {', ",\n".join(rows), "}"]
    return ("{\n" + "\n".join(lines) + "\n}\n").encode()


def decode(text: bytes) -> BaseLock:
    return from_json(json.loads(text))


def from_json(raw: Any, pins: Path | None = None) -> BaseLock:
    """The lock in a parsed file.  What is not a lock is a ValueError, a KeyError or a TypeError."""
    if raw["format"] != FORMAT:
        raise ValueError(f"lock format {raw['format']}, not {FORMAT}")
    return BaseLock(
        name=raw["name"],
        architecture=raw["architecture"],
        variant=raw["variant"],
        px_base_version=raw["px_base_version"],
        codename=raw["codename"],
        date=raw["date"],
        packages={name: _package(name, *row) for name, row in raw["packages"].items()},
        base=tuple(raw["base"]),
        compiler=tuple(raw["compiler"]),
        capabilities={name: Closure(tuple(c["runtime"]), tuple(c["build"])) for name, c in raw["capabilities"].items()},
        older=tuple(raw.get("older", ())),
        pins=pins,
    )


def _package(*row: Any) -> PinnedPackage:
    for pattern, word in zip(_ROW, row, strict=True):
        if not pattern.fullmatch(str(word)):
            raise ValueError(f"{str(row[0])!r} has {str(word)!r}")
    package = PinnedPackage(*row)
    if type(package.size) is not int:
        raise TypeError(f"{package.name!r} has no size")
    return package


def file_name(name: str, architecture: str) -> str:
    return f"{name}-{architecture}.json"


def read(directory: Path, name: str, architecture: str) -> BaseLock:
    return decode((directory / file_name(name, architecture)).read_bytes())
