"""Unpacks packages into a tree: which of their files an image gets, and what px refuses.

An image gets no manual pages, translations or documentation, except copyright files.  Setuid and setgid bits are
removed.  If two packages have the same path, one of them must declare that it replaces the other, as dpkg demands.
"""

from __future__ import annotations

import os
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from px import bounds
from px.debian.archive import DIRECTORY, FILE, HARDLINK, BadArchiveError, Deb, Member, members, read_deb
from px.debian.deb822 import parse_relations, parse_stanza
from px.store.canonical import is_text
from px.store.tree import check_link, check_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from px.debian.image import Image
    from px.debian.lock import PinnedPackage

# Files that no image gets.  The copyright files stay: licences ask for them, and the SBOM takes licences from them.
DROPPED = re.compile(
    r"usr/share/(?:man|locale|info|doc-base|lintian|linda|bug|reportbug|groff|menu)(?:/|$)"
    r"|usr/share/doc/[^/]+/(?!copyright$)"
    r"|usr/share/doc/[^/]+/copyright/."
)
# Absolute links may only lead into directories in which packages have files, or to /dev/null and /proc.
_OWNED = re.compile(r"/(?:usr|etc|var|run|bin|sbin|lib|lib32|lib64|opt|dev/null|proc/)")


Row = list[str | int]
"""A member of a package that was unpacked: path, kind, mode, target, and the sha256 of a file."""


class BadPackageError(Exception):
    """A package is damaged or hostile, and none of it may be used."""

    def __init__(self, package: PinnedPackage, problem: str, *, damaged: bool = False):
        super().__init__(f"{package.label}: {problem}")
        self.package = package
        self.problem = problem
        self.damaged = damaged
        """Whether the file differs from the lock.  Then a new download may help."""


@dataclass(frozen=True)
class Unpacked:
    """The control files of a package whose files are in the tree; the fix-ups read them."""

    package: PinnedPackage
    control: bytes
    md5sums: bytes = b""
    postinst: bytes = b""


def load(package: PinnedPackage, path: Path, stop: re.Pattern[str] | None = None) -> Deb:
    """Read a .deb, up to the first file that ``stop`` matches.  It must have the size and hash of the lock."""
    # The hash was checked after the download too.  This finds what a disk or another program changed since then.
    content = path.read_bytes()
    if len(content) != package.size or sha256(content).hexdigest() != package.sha256:
        raise BadPackageError(package, "its .deb in the store is not what the lock pins", damaged=True)
    try:
        return read_deb(content, stop)
    except (BadArchiveError, ValueError) as e:
        raise BadPackageError(package, str(e)) from e


@dataclass(frozen=True)
class Found:
    """What is in a package: its control files, and its members, read from the archive or found elsewhere."""

    control: dict[str, bytes]
    members: Iterable[Member]


@dataclass(frozen=True)
class Reading:
    """How to read packages, and which of their files to leave out."""

    read: Callable[[PinnedPackage, Path], Deb] = load
    dropped: re.Pattern[str] = DROPPED
    on_done: Callable[[PinnedPackage], None] = lambda _: None
    known: Mapping[str, Found] = field(default_factory=dict)
    """By sha256: packages that need not be read, because other layers have all their files."""
    remember: Callable[[PinnedPackage, dict[str, bytes], list[Row]], None] = lambda *_: None


def unpack_all(
    image: Image,
    packages: Sequence[PinnedPackage],
    locate: Callable[[PinnedPackage], Path],
    how: Reading = Reading(),  # noqa: B008 - frozen
) -> list[Unpacked]:
    """Unpack packages into the image.  All cores decompress; files are written in a fixed order."""
    owners: dict[str, _Unpacker] = {}
    done = []
    for package, found in _decompressed(unpacking_order(packages), locate, how):
        try:
            unpacker = _Unpacker(image, package, found.control, owners)
            done.append(unpacker.run(found.members, how.dropped))
        except (BadArchiveError, ValueError) as e:
            raise BadPackageError(package, str(e)) from e
        if package.sha256 not in how.known:
            how.remember(package, found.control, unpacker.rows)
        how.on_done(package)
    # By name: the order of unpacking depends on sizes, and fix-ups must not depend on it.
    return sorted(done, key=lambda u: u.package)


def unpacking_order(packages: Sequence[PinnedPackage]) -> list[PinnedPackage]:
    """The order in which packages are unpacked: base-files first, because it has the modes of directories.

    The others follow by size, the largest first, so that no core waits at the end for a large package.
    """
    return sorted(packages, key=lambda p: (p.name != "base-files", -p.size, p.name))


def _decompressed(
    packages: Sequence[PinnedPackage],
    locate: Callable[[PinnedPackage], Path],
    how: Reading,
) -> Iterator[tuple[PinnedPackage, Found]]:
    workers = max(2, os.cpu_count() or 1)
    todo = iter(packages)

    def read_one(package: PinnedPackage) -> Found:
        if package.sha256 in how.known:
            return how.known[package.sha256]
        deb = how.read(package, locate(package))  # `locate` may wait for a download
        return Found(deb.control, members(deb.data))

    with ThreadPoolExecutor(workers) as pool:
        # Only a few packages ahead: all of them, decompressed, may not fit into memory.
        ahead: deque[Future[Found]] = deque(pool.submit(read_one, p) for p in islice(todo, 3 * workers))
        try:
            for package in packages:
                found = ahead.popleft().result()
                ahead.extend(pool.submit(read_one, p) for p in islice(todo, 1))
                yield package, found
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Unpacker:
    """Writes one package into the image.  ``owners`` says which package wrote which path."""

    def __init__(self, image: Image, package: PinnedPackage, control: dict[str, bytes], owners: dict[str, _Unpacker]):
        self.image, self.package, self.control, self.owners = image, package, control, owners
        self.fields = parse_stanza(control.get("control", b"").decode("utf-8", "replace"))
        self.rows: list[Row] = []
        self.replaces = {group[0].name for group in parse_relations(self.fields.get("Replaces", ""))}

    def run(self, found: Iterable[Member], dropped: re.Pattern[str]) -> Unpacked:
        # The file has the lock's hash, so a wrong name here is a mistake in the lock.
        if self.fields.get("Package") != self.package.name or self.fields.get("Version") != self.package.version:
            raise BadArchiveError(f"it says that it is {self.fields.get('Package')} {self.fields.get('Version')}")
        for member in found:
            if member.path != "." and not dropped.match(member.path):
                self._add(member)
        control = self.control
        return Unpacked(self.package, control["control"], control.get("md5sums", b""), control.get("postinst", b""))

    def _add(self, member: Member) -> None:
        # First the name itself is checked.  Then the links in the image are followed, and they never lead out of it.
        if not is_text(member.path) or not is_text(member.target):
            raise BadArchiveError(f"{member.path!r}: a name that is not UTF-8, which no id can be made of")
        path = self.image.place(check_path(member.path))
        digest = ""
        if member.kind == DIRECTORY:
            self._add_directory(path, member.mode)
        elif self._is_taken(path, member):
            digest = digest_of(member) if member.kind == FILE else ""
        else:
            digest = self._write(path, member)
        self.rows.append([member.path, member.kind, member.mode, member.target, digest])

    def _write(self, path: str, member: Member) -> str:
        """Add a file or link; the sha256 of a file."""
        self.owners[path] = self
        writer = self.image.writer
        if member.kept is not None:
            writer.adopt(path, *member.kept)
        elif member.kind == FILE:
            # Without setuid, setgid and sticky bits.
            return writer.file(path, (member.content,), member.mode & 0o777)
        elif member.kind == HARDLINK:
            writer.hardlink(path, self.image.place(check_path(_plain(member.target))))
        else:
            writer.symlink(path, _checked_target(path, member.target))
        return ""

    def _add_directory(self, path: str, mode: int) -> None:
        # dpkg does the same: a directory that exists keeps its mode, and a link to a directory stays a link.
        if self.image.entry(path) is None:
            self.image.writer.directory(path, mode & 0o1777)  # the sticky bit of /tmp stays

    def _is_taken(self, path: str, member: Member) -> bool:
        """Whether the entry that is at ``path`` stays.  Raises if neither package replaces the other."""
        found = self.image.entry(path)
        if found is None:
            return False
        if found[0] == "d":
            raise BadArchiveError(f"{path} is a directory of another package")
        # Two packages may share a file if it is identical.
        if _same(found, member):
            return True
        owner = self.owners.get(path)
        if owner is None:
            # It is in a layer below.  Debian keeps packages installable together, so this package may replace it.
            return False
        if owner is self:
            raise BadArchiveError(f"two entries for {path}")
        if self.package.name in owner.replaces:
            return True
        if owner.package.name not in self.replaces:
            raise BadArchiveError(f"{path} belongs to {owner.package.name} already")
        self.image.writer.remove(path)
        return False


def _same(found: list[str | int], member: Member) -> bool:
    if found[0] == "l":
        return found[2] == member.target
    return found[0] == "f" and member.kind == FILE and found[4] == digest_of(member)


def digest_of(member: Member) -> str:
    return str(member.kept[1][4]) if member.kept is not None else sha256(member.content).hexdigest()


def _plain(target: str) -> str:
    return target.removeprefix("./")


def _checked_target(path: str, target: str) -> str:
    if not target or "\0" in target:
        raise BadArchiveError(f"{path} is a link to nowhere")
    if target.startswith("/"):
        if len(target) > bounds.PATH:
            raise BadArchiveError(f"link {path} is too long")
        if not _OWNED.match(target) or ".." in target.split("/"):
            raise BadArchiveError(f"link {path} -> {target} leads to a place where no package has files")
    else:
        check_link(path, target)
    return target
