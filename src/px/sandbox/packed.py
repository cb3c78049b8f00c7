"""Which images were packed here: a note for each, by which garbage collection knows whose blobs to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.store.files import write_json

if TYPE_CHECKING:
    from px.home import Home
    from px.oci.layout import Release


def remember(home: Home, release: Release) -> None:
    """Note an image that was packed; packing it again renews the note."""
    path = home.sandbox / "packed" / (release.digest.removeprefix("sha256:") + ".json")
    names = [str(name) for name in release.names]
    write_json(path, {"digest": release.digest, "names": names, "blobs": list(release.blob_digests())}, durable=False)
