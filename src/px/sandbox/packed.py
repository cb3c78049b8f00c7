"""Which packed images this machine keeps: their blobs stay until nobody packed or used them for a while."""

from __future__ import annotations

import json
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


def kept_blobs(home: Home, *, since: float) -> set[str]:
    """The blobs of every image that was packed after ``since``; older notes are forgotten."""
    found: set[str] = set()
    directory = home.sandbox / "packed"
    for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
        if path.stat().st_mtime < since:
            path.unlink()
            continue
        found.update(json.loads(path.read_bytes())["blobs"])
    return found
