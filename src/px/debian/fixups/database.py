"""The database of dpkg and apt: what is installed in an image, so that both can go on from there.

It is made from the packages' own .deb files, and has what dpkg would have written while it installed them.  So a later
``apt-get install`` finds every dependency, upgrades configuration files without a question, and runs the triggers of
packages that px has unpacked.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING

from px.debian.archive import FILE, members
from px.debian.deb822 import parse_stanza
from px.debian.download import arriving
from px.debian.locking.relock import POCKETS
from px.debian.mirror import domain
from px.debian.unpack import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from px.debian.lock import BaseLock, PinnedPackage
    from px.store.objects import Store
    from px.store.tree import TreeWriter

DPKG = "var/lib/dpkg"
_SCRIPTS = ("config", "postinst", "postrm", "preinst", "prerm")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


@dataclass(frozen=True)
class _Record:
    """What dpkg keeps of one package."""

    control: dict[str, bytes]
    paths: tuple[str, ...]
    conffiles: tuple[tuple[str, str], ...]
    """Each with its md5: an upgrade replaces those that nobody has changed."""

    @property
    def name(self) -> str:
        """Where packages of several architectures can be installed, dpkg names the architecture."""
        fields = parse_stanza(self.control["control"].decode("utf-8"))
        several = fields.get("Multi-Arch") == "same"
        return f"{fields['Package']}:{fields['Architecture']}" if several else fields["Package"]

    @property
    def stanza(self) -> str:
        control = self.control["control"].decode("utf-8").rstrip("\n")
        listed = "".join(f"\n {path} {digest}" for path, digest in self.conffiles)
        return f"{control}\nStatus: install ok installed\n" + (f"Conffiles:{listed}\n" if listed else "")


def write_database(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage], tree: TreeWriter) -> None:
    """Write the database of an image that has these packages, and apt's sources: the suites of the base."""
    records = _records(store, lock, packages)
    tree.file(f"{DPKG}/status", "\n".join(record.stanza for record in records).encode())
    tree.file(f"{DPKG}/available", b"")
    tree.file(f"{DPKG}/info/format", b"1\n")
    for record in records:
        tree.file(f"{DPKG}/info/{record.name}.list", "".join(f"/{path}\n" for path in record.paths).encode())
        # Only newer versions of dpkg have this file, and older ones warn of it.
        if record.name == "dpkg" and b"arch-native" in record.control["postinst"]:
            tree.file(f"{DPKG}/arch-native", f"{lock.architecture}\n".encode())
        for name, content in sorted(record.control.items()):
            if name != "control":
                tree.file(f"{DPKG}/info/{record.name}.{name}", content, 0o755 if name in _SCRIPTS else 0o644)
    for name, content in sorted(_triggers(records).items()):
        tree.file(f"{DPKG}/triggers/{name}", content)
    tree.file("etc/apt/sources.list.d/debian.sources", _sources(lock.codename))


def _records(store: Store, lock: BaseLock, packages: Sequence[PinnedPackage]) -> list[_Record]:
    with arriving(store, lock, packages) as place, ThreadPoolExecutor() as pool:
        return list(pool.map(lambda package: _record(package, place(package)), packages))


def _record(package: PinnedPackage, path: Path) -> _Record:
    deb = load(package, path)
    listed = deb.control.get("conffiles", b"").decode("utf-8").splitlines()
    # A line can also begin with a flag, for a file that an upgrade shall remove.
    wanted = {line.rstrip().removeprefix("/") for line in listed if line.startswith("/")}
    paths, digests = [], {}
    for member in members(deb.data):
        paths.append(member.path)
        if member.kind == FILE and member.path in wanted:
            digests[member.path] = md5(member.content, usedforsecurity=False).hexdigest()
    return _Record(deb.control, tuple(paths), tuple((f"/{name}", digest) for name, digest in sorted(digests.items())))


def _triggers(records: Sequence[_Record]) -> dict[str, bytes]:
    """Who wants to know what, by the names of dpkg's files: paths are in one file, and other names have one each."""
    found: defaultdict[str, list[str]] = defaultdict(list, File=[], Unincorp=[])
    for record in records:
        for kind, name in _interests(record.control.get("triggers", b"").decode("utf-8")):
            package = record.name + ("/noawait" if kind == "interest-noawait" else "")
            if name.startswith("/"):
                found["File"].append(f"{name} {package}\n")
            else:
                found[name].append(f"{package}\n")
    return {name: "".join(lines).encode() for name, lines in found.items()}


def _interests(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0].startswith("interest"):
            yield words[0], words[1]


def _sources(codename: str) -> bytes:
    """Debian's archive by the address that its own installer writes, with all pockets of the base's release."""
    archives = {"debian": [p for p in POCKETS if p != "-security"], "debian-security": ["-security"]}
    stanzas = [
        f"Types: deb\nURIs: http://deb.{domain()}/{archive}\n"
        f"Suites: {' '.join(codename + pocket for pocket in pockets)}\nComponents: main\nSigned-By: {_KEYRING}\n"
        for archive, pockets in archives.items()
    ]
    return "\n".join(stanzas).encode()
