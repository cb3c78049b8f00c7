"""Writes images as files: an OCI layout directory, or a ``.tar`` that OCI tools and ``docker load`` can read.

The archive is an OCI layout in a tar.  It also has Docker's ``manifest.json``, which points to the same blobs, so that
engines that know only Docker's older archives can load it too.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from px import console
from px.errors import PxError
from px.oci import tar
from px.oci.config import BuiltImage, build_index
from px.oci.documents import FORMATS, OCI, Descriptor, Json, encode
from px.oci.failures import building
from px.store.files import open_atomically, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from px.oci.blobs import Blobs
    from px.oci.registry.reference import Reference

_MARKER = b'{"imageLayoutVersion":"1.0.0"}'
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Release:
    """An image, or the images of several platforms, and the names that it is published under."""

    top: Descriptor
    images: tuple[BuiltImage, ...]
    names: tuple[Reference, ...]

    @property
    def digest(self) -> str:
        return self.top.digest

    def blob_digests(self) -> tuple[str, ...]:
        """Every blob once.  A blob comes before the documents that refer to it."""
        found = [digest for image in self.images for digest in image.blob_digests()]
        return tuple(dict.fromkeys([*found, self.top.digest]))


def release(blobs: Blobs, images: tuple[BuiltImage, ...], names: tuple[Reference, ...]) -> Release:
    """A release of these images.  Several images get an index; a single one needs none."""
    top = images[0].manifest if len(images) == 1 else build_index(blobs, images)
    return Release(top, images, names)


def write_layout(blobs: Blobs, what: Release, directory: Path) -> None:
    """Write an OCI layout, or replace the one that is there.

    The blobs come first, and ``index.json`` last, by a rename.  So a reader always finds a whole image.
    """
    with building(blobs.home, directory), _nothing_half_made(directory):
        folder = directory / "blobs" / "sha256"
        folder.mkdir(parents=True, exist_ok=True)
        # The marker comes first: if px is killed, check_replaceable then knows the directory as a layout.
        write_atomically(directory / "oci-layout", _MARKER)
        wanted = what.blob_digests()
        for digest in wanted:
            _copy_blob(blobs.path(digest), folder / digest.removeprefix("sha256:"))
        write_atomically(directory / "index.json", encode(index_document(what)))
        # Blobs of the layout that was there before.
        keep = {digest.removeprefix("sha256:") for digest in wanted}
        for stale in [p for p in folder.iterdir() if p.name not in keep]:
            stale.unlink()


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Open a file that the user named.  It appears when it is complete.

    If the name is a link, the file behind it is replaced, not the link.  A pipe or device, such as ``/dev/stdout``, is
    written to directly.
    """
    target = Path(os.path.realpath(path))
    if path.exists() and not target.is_file():
        with path.open("wb") as out:
            yield out
    else:
        with open_atomically(target) as out:
            yield out


def write_archive(blobs: Blobs, what: Release, path: Path) -> None:
    """Write the archive to a file, complete or not at all."""
    with building(blobs.home, path.parent), open_output(path) as out, console.waiting(f"Writing {path}"):
        stream_archive(blobs, what, out)


def stream_archive(blobs: Blobs, what: Release, out: BinaryIO) -> None:
    """Write the archive to a stream, such as the standard input of ``docker load``."""
    documents = {"index.json": index_document(what), "manifest.json": docker_document(what)}
    stream_blobs(blobs, what.blob_digests(), documents, out)


def stream_blobs(blobs: Blobs, digests: Iterable[str], documents: Mapping[str, object], out: BinaryIO) -> None:
    """Write a layout of these blobs, and of these documents beside them, as an archive."""
    tar.add_directory("blobs", out.write)
    tar.add_directory("blobs/sha256", out.write)
    # Sorted, so that the archive is the same every time.
    for digest in sorted(set(digests)):
        path = blobs.path(digest)
        name = "blobs/sha256/" + digest.removeprefix("sha256:")
        tar.add_file(name, path.stat().st_size, _chunks(path), out.write)
    written = {**{name: encode(document) for name, document in documents.items()}, "oci-layout": _MARKER}
    for name, content in written.items():
        tar.add_file(name, len(content), [content], out.write)
    tar.end(out.write)


def index_document(what: Release) -> Json:
    """``index.json``.  It has the image once for each name, because names are annotations of its entries."""
    # skopeo, podman and umoci read the tag from ref.name.  containerd has an annotation of its own, for the whole name.
    entries = []
    for name in what.names:
        named = {
            "org.opencontainers.image.ref.name": name.tag or "latest",
            "io.containerd.image.name": name.for_containerd,
        }
        entries.append(Descriptor(what.top.media_type, what.digest, what.top.size, named, what.top.platform).document())
    if not entries:
        entries.append(what.top.document())
    return {"schemaVersion": 2, "mediaType": FORMATS[OCI].index, "manifests": entries}


def docker_document(what: Release) -> list[Json]:
    """Docker's ``manifest.json``.  It has no platforms, so it has only the first image."""
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
    """If the block fails, remove what it wrote to a new layout.  A layout that existed before stays usable.

    An older layout stays as it is until its ``index.json`` is replaced, so it needs no cleanup.
    """
    check_replaceable(directory)
    # fresh: no layout was here, so everything that looks like one is ours and can be removed.
    existed, fresh = directory.exists(), not (directory / "oci-layout").exists()
    try:
        yield
    except BaseException:
        if fresh:
            for name in ("index.json", "oci-layout"):
                (directory / name).unlink(missing_ok=True)
            shutil.rmtree(directory / "blobs", ignore_errors=True)
        # The directory may hold files of somebody else by now: then rmdir fails, and it stays.
        if not existed:
            with suppress(OSError):
                directory.rmdir()
        raise


def check_replaceable(directory: Path) -> None:
    """Refuse a directory that is neither empty nor a layout: px would mix its files with the user's."""
    if directory.exists() and not directory.is_dir():
        raise PxError("PX903", problem=f"{directory} is a file", fix=["Leave out the / at the end: --out FILE.tar"])
    if directory.exists() and any(directory.iterdir()) and not (directory / "oci-layout").is_file():
        raise PxError(
            "PX903",
            problem=f"{directory} is not empty and is not an OCI layout",
            fix=["Name a new directory with --out DIR/, or a file with --out FILE.tar."],
        )


def _copy_blob(source: Path, target: Path) -> None:
    # It appeared by a rename and has a digest as its name: if the size is right, it is the same blob.
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    with open_atomically(target) as out:
        for chunk in _chunks(source):
            out.write(chunk)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as f:
        while chunk := f.read(_CHUNK):
            yield chunk
