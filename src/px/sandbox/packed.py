"""Which images were packed here: a note for each, by which they are found, and garbage collection knows their blobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from px.store.files import write_json

if TYPE_CHECKING:
    from px.home import Home
    from px.oci.layout import Release
    from px.oci.reference import Reference


def remember(home: Home, release: Release) -> None:
    """Note an image that was packed; packing it again renews the note."""
    path = home.sandbox / "packed" / (release.digest.removeprefix("sha256:") + ".json")
    names = [str(name) for name in release.names]
    write_json(path, {"digest": release.digest, "names": names, "blobs": list(release.blob_digests())}, durable=False)


def find(home: Home, name: Reference) -> str | None:
    """The digest of the image that was packed last under a name."""
    notes = sorted((home.sandbox / "packed").glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for note in (json.loads(path.read_bytes()) for path in notes):
        if str(name) in note["names"]:
            return str(note["digest"])
    return None
