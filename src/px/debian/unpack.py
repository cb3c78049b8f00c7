"""Packages into a tree: which of their members an image gets, and what is refused.

An image has no manual pages, translations or documentation except the copyright files; no file runs with
another user's rights; and where two packages bring the same path, one of them must say that it replaces
the other, as dpkg demands.
"""

from __future__ import annotations

import os
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from px.debian.archive import DIRECTORY, FILE, HARDLINK, BadArchiveError, Deb, Member, members, read_deb
from px.debian.deb822 import parse_relations, parse_stanza
from px.store.tree import check_link, check_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from px.debian.image import Image
    from px.debian.lock import PinnedPackage

# Merged /usr: every base has these four names as links, whatever its packages ship.
MERGED = {"amd64": ("bin", "lib", "lib64", "sbin"), "arm64": ("bin", "lib", "sbin")}
DROPPED = re.compile(
    r"usr/share/(?:man|locale|info|doc-base|lintian|linda|bug|reportbug|groff|menu)(?:/|$)"
    r"|usr/share/doc/[^/]+/(?!copyright$)"
    r"|usr/share/doc/[^/]+/copyright/."
)
# Where an absolute link of a package may lead: the directories that packages own.
_OWNED = re.compile(r"/(?:usr|etc|var|run|bin|sbin|lib|lib32|lib64|opt|dev/null|proc/)")


class BadPackageError(Exception):
    """A package that is damaged or hostile; nothing of it may be used."""

    def __init__(self, package: PinnedPackage, problem: str, *, damaged: bool = False):
        super().__init__(f"{package.label}: {problem}")
        self.package = package
        self.problem = problem
        self.damaged = damaged
        """Whether the file differs from what was pinned: another download may mend it."""


@dataclass(frozen=True)
class Unpacked:
    """What a package says about itself once its files are in the tree."""

    package: PinnedPackage
    control: bytes
    md5sums: bytes = b""
    postinst: bytes = b""


def load(package: PinnedPackage, path: Path, stop: re.Pattern[str] | None = None) -> Deb:
    """Read a .deb that is still what the lock pins, up to the first file that ``stop`` matches."""
    content = path.read_bytes()
    if len(content) != package.size or sha256(content).hexdigest() != package.sha256:
        raise BadPackageError(package, "its .deb in the store is not what the lock pins", damaged=True)
    try:
        return read_deb(content, stop)
    except (BadArchiveError, ValueError) as e:
        raise BadPackageError(package, str(e)) from e


def unpack_all(
    image: Image,
    packages: Sequence[PinnedPackage],
    locate: Callable[[PinnedPackage], Path],
    on_done: Callable[[PinnedPackage], None] = lambda _: None,
    read: Callable[[PinnedPackage, Path], Deb] = load,
    dropped: re.Pattern[str] = DROPPED,
) -> list[Unpacked]:
    """Unpack packages into the image: decompressed on all cores, written in one fixed order."""
    owners: dict[str, _Unpacker] = {}
    done = []
    for package, deb in _decompressed(unpacking_order(packages), locate, read):
        try:
            done.append(_Unpacker(image, package, deb.control, owners).run(deb.data, dropped))
        except (BadArchiveError, ValueError) as e:
            raise BadPackageError(package, str(e)) from e
        on_done(package)
    return sorted(done, key=lambda u: u.package)


def unpacking_order(packages: Sequence[PinnedPackage]) -> list[PinnedPackage]:
    """base-files first, because it gives directories their modes; then large before small, to keep cores busy."""
    return sorted(packages, key=lambda p: (p.name != "base-files", -p.size, p.name))


def _decompressed(
    packages: Sequence[PinnedPackage],
    locate: Callable[[PinnedPackage], Path],
    read: Callable[[PinnedPackage, Path], Deb],
) -> Iterator[tuple[PinnedPackage, Deb]]:
    workers = max(2, os.cpu_count() or 1)
    todo = iter(packages)

    def read_one(package: PinnedPackage) -> Deb:
        return read(package, locate(package))  # it may have to arrive first

    with ThreadPoolExecutor(workers) as pool:
        # A few ahead, not all: unpacked archives together can be larger than the memory.
        ahead: deque[Future[Deb]] = deque(pool.submit(read_one, p) for p in islice(todo, 3 * workers))
        try:
            for package in packages:
                deb = ahead.popleft().result()
                ahead.extend(pool.submit(read_one, p) for p in islice(todo, 1))
                yield package, deb
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Unpacker:
    """One package's way into the image."""

    def __init__(self, image: Image, package: PinnedPackage, control: dict[str, bytes], owners: dict[str, _Unpacker]):
        self.image, self.package, self.control, self.owners = image, package, control, owners
        self.fields = parse_stanza(control.get("control", b"").decode("utf-8", "replace"))
        self.replaces = {group[0].name for group in parse_relations(self.fields.get("Replaces", ""))}

    def run(self, data: bytes, dropped: re.Pattern[str]) -> Unpacked:
        if self.fields.get("Package") != self.package.name or self.fields.get("Version") != self.package.version:
            raise BadArchiveError(f"it says that it is {self.fields.get('Package')} {self.fields.get('Version')}")
        for member in members(data):
            if member.path != "." and not dropped.match(member.path):
                self._add(member)
        control = self.control
        return Unpacked(self.package, control["control"], control.get("md5sums", b""), control.get("postinst", b""))

    def _add(self, member: Member) -> None:
        path = self.image.place(check_path(member.path))
        if member.kind == DIRECTORY:
            self._add_directory(path, member.mode)
            return
        if self._is_taken(path, member):
            return
        self.owners[path] = self
        writer = self.image.writer
        if member.kind == FILE:
            writer.file(path, (member.content,), member.mode & 0o777)
        elif member.kind == HARDLINK:
            writer.hardlink(path, self.image.place(check_path(_plain(member.target))))
        else:
            writer.symlink(path, _checked_target(path, member.target))

    def _add_directory(self, path: str, mode: int) -> None:
        # A directory that is there already, or a link in its place, stays as it is: dpkg does the same.
        if self.image.entry(path) is None:
            self.image.writer.directory(path, mode & 0o1777)

    def _is_taken(self, path: str, member: Member) -> bool:
        """Whether another package's entry stays in this place; raises when neither replaces the other."""
        found = self.image.entry(path)
        if found is None:
            return False
        if found[0] == "d":
            raise BadArchiveError(f"{path} is a directory of another package")
        if _same(found, member):
            return True
        owner = self.owners.get(path)
        if owner is None:
            return False  # of a layer below: the archive keeps packages installable together, so this one replaces it
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
    return found[0] == "f" and member.kind == FILE and found[4] == sha256(member.content).hexdigest()


def _plain(target: str) -> str:
    return target.removeprefix("./")


def _checked_target(path: str, target: str) -> str:
    if not target or "\0" in target:
        raise BadArchiveError(f"{path} is a link to nowhere")
    if target.startswith("/"):
        if not _OWNED.match(target) or ".." in target.split("/"):
            raise BadArchiveError(f"link {path} -> {target} leads to where no package has files")
    else:
        check_link(path, target)
    return target
