"""A reader for .apk files and indexes: several gzip streams in a row, each with a tar archive.

The first stream has a signature of the second.  In a package the second stream is the control part, and its
``datahash`` is the sha256 of the third stream, which has the files.  So the signature, or the hash of the control part
in a signed index, covers the whole package.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from px import bounds
from px.debian.archive import FILE, BadArchiveError, members, stream

_MOST = 3  # signature, control part, files


@dataclass(frozen=True)
class Stream:
    """One gzip stream: its compressed bytes, which are what signatures and hashes cover, and its content."""

    packed: bytes
    content: bytes

    def files(self) -> dict[str, bytes]:
        return {m.path: bytes(m.content) for m in members(self.content) if m.kind == FILE}


@dataclass(frozen=True)
class Apk:
    """A package: its .PKGINFO, the hash of its control part, by which an index names it, and its files."""

    info: dict[str, list[str]]
    control_sha1: str
    data: bytes
    """The uncompressed tar archive of the files."""

    def one(self, name: str) -> str:
        return self.info.get(name, [""])[0]


def streams(content: bytes) -> list[Stream]:
    """Split a file into its gzip streams."""
    # gzip.decompress would join the streams.
    found, rest, left = list[Stream](), content, bounds.unpacked(len(content), bounds.IN_MEMORY)
    while rest:
        if len(found) == _MOST:
            raise BadArchiveError("it has too many gzip streams")
        unpacked, after = stream(rest, "gz", left)
        found.append(Stream(rest[: len(rest) - len(after)], unpacked))
        left -= len(unpacked)
        rest = after
    return found


def read_apk(content: bytes) -> Apk:
    """Read a package, and check that its files have the hash that its control part names."""
    # The signature is not checked here: a lock pins the whole file, and a signed index names the control part.
    parts = streams(content)
    # The stream with the signature is optional.
    if parts and any(name.startswith(".SIGN.") for name in parts[0].files()):
        parts = parts[1:]
    if len(parts) != 2:
        raise BadArchiveError("not an Alpine package: it must have a control part and files")
    control, data = parts
    info = parse_info(control.files().get(".PKGINFO", b""))
    if info.get("datahash", [""])[0] != hashlib.sha256(data.packed).hexdigest():
        raise BadArchiveError("its files are not those that its control part names")
    return Apk(info, hashlib.sha1(control.packed, usedforsecurity=False).hexdigest(), data.content)


def parse_info(text: bytes) -> dict[str, list[str]]:
    """Parse ``.PKGINFO``: lines of ``name = value``, some of them repeated."""
    found: dict[str, list[str]] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition(" = ")
        if equals and not line.startswith("#"):
            found.setdefault(name.strip(), []).append(value.strip())
    return found
