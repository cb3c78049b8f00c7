"""Images as files: the OCI layout directory, and one ``.tar`` that OCI tools and ``docker load`` both take.

The archive is an OCI layout in a tar.  Beside ``index.json`` it has Docker's ``manifest.json``, which points
at the very same blobs, so engines that know only Docker's older archives load it too.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from px.errors import PxError
from px.oci import tar
from px.oci.config import BuiltImage, build_index
from px.oci.documents import FORMATS, OCI, Descriptor, Json, encode
from px.oci.failures import building
from px.store.files import open_atomically, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.oci.blobs import Blobs
    from px.oci.reference import Reference

_MARKER = b'{"imageLayoutVersion":"1.0.0"}'
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Release:
    """What is shipped under one or more names: an image, or the images of several platforms."""

    top: Descriptor
    images: tuple[BuiltImage, ...]
    names: tuple[Reference, ...]

    @property
    def digest(self) -> str:
        return self.top.digest

    def blob_digests(self) -> tuple[str, ...]:
        """Every blob once, each before whatever refers to it."""
        found = [digest for image in self.images for digest in image.blob_digests()]
        return tuple(dict.fromkeys([*found, self.top.digest]))


def release(blobs: Blobs, images: tuple[BuiltImage, ...], names: tuple[Reference, ...]) -> Release:
    """Put images together: one stays as it is, several get an index."""
    top = images[0].manifest if len(images) == 1 else build_index(blobs, images)
    return Release(top, images, names)


def write_layout(blobs: Blobs, what: Release, directory: Path) -> None:
    """Write an OCI layout; one that is there already is replaced.

    The blobs come first and ``index.json`` last, by a rename, so a reader always finds a whole image.
    """
    with building(blobs.home, directory), _nothing_half_made(directory):
        folder = directory / "blobs" / "sha256"
        folder.mkdir(parents=True, exist_ok=True)
        # First, so that a try that was killed is known as ours by the next one.
        write_atomically(directory / "oci-layout", _MARKER)
        wanted = what.blob_digests()
        for digest in wanted:
            _copy_blob(blobs.path(digest), folder / digest.removeprefix("sha256:"))
        write_atomically(directory / "index.json", encode(index_document(what)))
        keep = {digest.removeprefix("sha256:") for digest in wanted}
        for stale in [p for p in folder.iterdir() if p.name not in keep]:
            stale.unlink()


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """A file that the user named: it appears whole, through a link too; pipes and devices are written as they are."""
    target = Path(os.path.realpath(path))
    if path.exists() and not target.is_file():
        with path.open("wb") as out:
            yield out
    else:
        with open_atomically(target) as out:
            yield out


def write_archive(blobs: Blobs, what: Release, path: Path) -> None:
    """Write the archive, complete or not at all."""
    with building(blobs.home, path.parent), open_output(path) as out:
        stream_archive(blobs, what, out)


def stream_archive(blobs: Blobs, what: Release, out: BinaryIO) -> None:
    """The archive as a stream: what ``docker load`` reads from its standard input."""
    documents = {
        "index.json": encode(index_document(what)),
        "manifest.json": encode(docker_document(what)),
        "oci-layout": _MARKER,
    }
    tar.add_directory("blobs", out.write)
    tar.add_directory("blobs/sha256", out.write)
    for digest in sorted(what.blob_digests()):
        path = blobs.path(digest)
        name = "blobs/sha256/" + digest.removeprefix("sha256:")
        tar.add_file(name, path.stat().st_size, _chunks(path), out.write)
    for name, content in documents.items():
        tar.add_file(name, len(content), [content], out.write)
    tar.end(out.write)


def index_document(what: Release) -> Json:
    """``index.json``: the image once per name, because that is where a layout keeps names."""
    entries = []
    for name in what.names:
        named = {"org.opencontainers.image.ref.name": name.tag or "latest", "io.containerd.image.name": str(name)}
        entries.append(Descriptor(what.top.media_type, what.digest, what.top.size, named, what.top.platform).document())
    if not entries:
        entries.append(what.top.document())
    return {"schemaVersion": 2, "mediaType": FORMATS[OCI].index, "manifests": entries}


def docker_document(what: Release) -> list[Json]:
    """``manifest.json`` of Docker's archives.  It knows no platforms: the first image gets the names."""
    image = what.images[0]
    return [
        {
            "Config": _blob_name(image.config.digest),
            "RepoTags": [f"{name.repository}:{name.tag or 'latest'}" for name in what.names],
            "Layers": [_blob_name(use.blob.digest) for use in image.layers],
        }
    ]


def _blob_name(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")


@contextmanager
def _nothing_half_made(directory: Path) -> Iterator[None]:
    """A layout that was there stays as it was until the new one is whole; a new one is removed if it fails."""
    check_replaceable(directory)
    existed, fresh = directory.exists(), not (directory / "oci-layout").exists()
    try:
        yield
    except BaseException:
        if fresh:
            for name in ("index.json", "oci-layout"):
                (directory / name).unlink(missing_ok=True)
            shutil.rmtree(directory / "blobs", ignore_errors=True)
        if not existed:
            with suppress(OSError):
                directory.rmdir()
        raise


def check_replaceable(directory: Path) -> None:
    """Refuse a directory that holds something else than a layout."""
    if directory.exists() and not directory.is_dir():
        raise PxError("PX903", problem=f"{directory} is a file", fix=["Without the / at the end: --out FILE.tar"])
    if directory.exists() and any(directory.iterdir()) and not (directory / "oci-layout").is_file():
        raise PxError(
            "PX903",
            problem=f"{directory} is not empty and is not an OCI layout",
            fix=["Name a new directory with --out DIR/, or a file with --out FILE.tar."],
        )


def _copy_blob(source: Path, target: Path) -> None:
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    with open_atomically(target) as out:
        for chunk in _chunks(source):
            out.write(chunk)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as f:
        while chunk := f.read(_CHUNK):
            yield chunk
