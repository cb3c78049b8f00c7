"""What a sandbox consists of and what each part weighs, from its layers: those of the store, or those of an image.

Both are read in the same way.  The packages describe themselves in small files of the layers (dpkg's and apk's
databases, METADATA and RECORD of Python's distributions), so an image of another machine tells as much as the store.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from px import bounds
from px.debian.deb822 import parse_stanza
from px.debian.fixups.status import DIRECTORY as STATUS
from px.sandbox.report.cyclonedx import debian_licences, python_licences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SYSTEM, PYTHON, OTHER = "system", "python", "other"
APK = "lib/apk/db/installed"
_DISTRIBUTION = re.compile(r"(?P<site>.*/(?:site|dist)-packages)/(?P<stem>[^/]+)\.dist-info/(?P<file>METADATA|RECORD)")
_COPYRIGHT = re.compile(r"usr/share/doc/([^/]+)/copyright")
_BYTECODE = re.compile(r"(.*/)__pycache__/([^/]+)\.[^./]+\.pyc")
_LONGEST = 200
# Files of a layer that no package claims, by the layer.
_REST = {
    "base": "links, caches and settings of the base",
    "system": "links and caches of the system packages",
    "dpkg": "the database of dpkg",
    "runtime": "CPython",
    "env": "the env itself",
    "app": "the project",
    "project": "the project's metadata",
}


@dataclass(frozen=True)
class Tree:
    """One layer: the sizes of its files, and the text of those that describe packages."""

    what: str
    """``base``, ``system``, ``runtime``, ``package NAME``, ``env``, ``app`` …"""
    sizes: Mapping[str, int] = field(repr=False)
    texts: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Package:
    """A package of the sandbox: Debian's, Alpine's or Python's."""

    kind: str
    name: str
    version: str
    size: int
    licences: tuple[str, ...]


@dataclass(frozen=True)
class Weight:
    """What one package, or the rest, weighs in one layer."""

    layer: str
    kind: str
    name: str
    size: int


@dataclass(frozen=True)
class Contents:
    """Everything that was found in the layers."""

    packages: tuple[Package, ...]
    weights: tuple[Weight, ...]

    @property
    def size(self) -> int:
        return sum(weight.size for weight in self.weights)

    def layers(self) -> dict[str, int]:
        """Layer -> what it weighs, from the bottom up."""
        found: dict[str, int] = {}
        for weight in self.weights:
            found[weight.layer] = found.get(weight.layer, 0) + weight.size
        return found


def describes(path: str) -> bool:
    """Whether a file says something about packages: only the text of these is read."""
    if path.startswith(f"{STATUS}/") or path == APK:
        return True
    return _COPYRIGHT.fullmatch(path) is not None or _DISTRIBUTION.fullmatch(path) is not None


def contents(trees: Sequence[Tree]) -> Contents:
    """Read the layers, from the bottom up."""
    found = _Found()
    for tree in trees:
        for path in sorted(tree.texts):
            found.read(path, tree.texts[path])
    weights: dict[tuple[str, str, str], int] = defaultdict(int)
    for tree in trees:
        weights[tree.what, OTHER, _REST.get(tree.what, tree.what)] += 0
        for path, size in tree.sizes.items():
            kind, name = found.owner(path) or (OTHER, _REST.get(tree.what, tree.what))
            weights[tree.what, kind, name] += size
    rows = tuple(Weight(*key, size) for key, size in weights.items() if size)
    return Contents(tuple(found.packages(rows)), rows)


class _Found:
    """What the layers say about packages, while they are read."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], str] = {}
        self._licences: dict[tuple[str, str], tuple[str, ...]] = {}
        self._owners: dict[str, tuple[str, str]] = {}

    def read(self, path: str, text: str) -> None:
        """One of the files that describe packages."""
        if path == APK:
            self._apk(text)
        elif path.startswith(f"{STATUS}/"):
            self._dpkg(path.removeprefix(f"{STATUS}/"), text)
        elif named := _COPYRIGHT.fullmatch(path):
            self._licences[SYSTEM, named[1]] = debian_licences(text)
        elif named := _DISTRIBUTION.fullmatch(path):
            self._python(named["site"], named["stem"], named["file"], text)

    def _dpkg(self, name: str, text: str) -> None:
        if name.endswith(".md5sums"):
            owner = (SYSTEM, name.removesuffix(".md5sums"))
            self._owners |= {line[34:]: owner for line in text.splitlines()}
            return
        with suppress(ValueError):
            row = parse_stanza(text)
            self._versions[SYSTEM, row.get("Package", name)] = row.get("Version", "")

    def _apk(self, text: str) -> None:
        """apk's database: a paragraph for each package, a letter for each field, F: and R: for its files."""
        key, folder = (SYSTEM, ""), ""
        for letter, _, value in (line.partition(":") for line in text.splitlines()):
            if letter == "P":
                key = (SYSTEM, value)
            elif letter == "V":
                self._versions[key] = value
            elif letter == "L":
                self._licences[key] = (value,)
            elif letter == "F":
                folder = value
            elif letter == "R":
                self._owners[posixpath.join(folder, value)] = key

    def _python(self, site: str, stem: str, file: str, text: str) -> None:
        key = (PYTHON, canonicalize_name(stem.partition("-")[0]))
        if file == "METADATA":
            self._versions[key] = stem.partition("-")[2]
            self._licences[key] = python_licences(text)
            return
        self._owners |= {posixpath.normpath(f"{site}/{path}"): key for path in _recorded(text)}

    def owner(self, path: str) -> tuple[str, str] | None:
        """The package that a file belongs to; a compiled module belongs to that of its source."""
        if compiled := _BYTECODE.fullmatch(path):
            path = f"{compiled[1]}{compiled[2]}.py"
        # Debian's lists have the paths from before /usr was merged.
        found = self._owners.get(path) or self._owners.get(path.removeprefix("usr/"))
        if found is None and path.startswith(f"{STATUS}/"):
            found = (SYSTEM, path.removeprefix(f"{STATUS}/").removesuffix(".md5sums"))
        if found is None and (named := _COPYRIGHT.fullmatch(path)):
            found = (SYSTEM, named[1])
        return found if found in self._versions else None

    def packages(self, weights: Iterable[Weight]) -> Iterator[Package]:
        sizes: dict[tuple[str, str], int] = defaultdict(int)
        for weight in weights:
            sizes[weight.kind, weight.name] += weight.size
        for kind, name in sorted(self._versions):
            licences = tuple(one[:_LONGEST] for one in self._licences.get((kind, name), ()))
            yield Package(kind, name, self._versions[kind, name], sizes[kind, name], licences)


def _recorded(text: str) -> Iterator[str]:
    """The paths of a RECORD, as far as it can be read: packages write it themselves."""
    try:
        for row in csv.reader(text.splitlines()):
            if row and len(row[0]) <= bounds.PATH:
                yield row[0]
    except csv.Error:
        return
