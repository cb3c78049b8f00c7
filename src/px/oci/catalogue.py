"""The images that were packed on this machine: one note for each.

``px pack verify`` finds an image by its name here, and garbage collection keeps the blobs that a note lists.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from px.store.files import write_json

if TYPE_CHECKING:
    from px.home import Home
    from px.oci.layout import Release
    from px.oci.registry.reference import Reference


def remember(home: Home, release: Release) -> None:
    """Write the note of an image.  Packing it again writes it again, so its time is that of the last packing."""
    path = home.sandbox / "packed" / (release.digest.removeprefix("sha256:") + ".json")
    names = [str(name) for name in release.names]
    # The blobs are listed here, so that garbage collection need not read manifests.
    write_json(path, {"digest": release.digest, "names": names, "blobs": list(release.blob_digests())}, durable=False)


def find(home: Home, name: Reference) -> str | None:
    """The digest of the image that was last packed under this name."""
    notes = sorted((home.sandbox / "packed").glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for note in (json.loads(path.read_bytes()) for path in notes):
        if str(name) in note["names"]:
            return str(note["digest"])
    return None
