"""Bundles: everything that a project's sandbox and image need, as one file in the form of an OCI layout.

A bundle carries objects of the store: bases, layers and built packages.  So the other machine needs neither a network
nor a compiler.  Every object is checked against its oid when it arrives, and the whole against the bundle's digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from px import __version__, bounds, console
from px.errors import PxError
from px.http import FetchError
from px.oci.blobs import Blobs
from px.oci.documents import FORMATS, OCI, Descriptor, digest_of
from px.oci.failures import building
from px.oci.layout import open_output, stream_blobs
from px.oci.objects import EMPTY_DIGEST, DamagedError, documents_in, manifest_of, pack_object, take_all
from px.oci.registry.client import RegistryError
from px.oci.sources import manifests, read_document, source_of
from px.store.files import write_atomically
from px.workflow.supply.objects import collect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.oci.objects import ObjectName
    from px.oci.sources import Source
    from px.project.situation import Situation
    from px.store.objects import Store

BUNDLE = "application/vnd.px.bundle.v1"
FILE = "application/octet-stream"
TITLE = "org.opencontainers.image.title"
_VERSION = "dev.px.version"


@dataclass(frozen=True)
class Bundle:
    """What was written or taken."""

    digest: str
    objects: tuple[ObjectName, ...]
    files: tuple[str, ...] = ()
    size: int = 0


def export(situation: Situation, path: Path, architectures: Sequence[str], files: Path | None = None) -> Bundle:
    """Write the bundle of a project.  The same project gives the same bytes on every machine."""
    store = situation.context.store
    blobs = Blobs(store.home)
    found = collect(situation, architectures)
    with console.waiting(f"Packing {console.counted(len(found), 'object')}", at_once=True):
        objects = [pack_object(store, blobs, name, oid) for name, oid in found.items()]
    more = [_file(blobs, file) for file in _files(files)] if files else []
    manifest = manifest_of(blobs, BUNDLE, objects, more)
    named = {_VERSION: __version__, "org.opencontainers.image.ref.name": "latest"}
    top = replace(manifest, annotations=named).document()
    index = {"schemaVersion": 2, "mediaType": FORMATS[OCI].index, "manifests": [top]}
    digests = [
        manifest.digest,
        EMPTY_DIGEST,
        *(at.digest for o in objects for at in o.blobs),
        *(at.digest for at in more),
    ]
    with building(store.home, path.parent), open_output(path) as out:
        stream_blobs(blobs, digests, {"index.json": index}, out)
    size = path.stat().st_size if path.is_file() else 0
    return Bundle(manifest.digest, tuple(found), tuple(at.annotations[TITLE] for at in more), size)


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        problem, example = "there is no such directory", "px bundle export app.bundle --files wheels"
        raise PxError("PX040", option="--files", value=directory, problem=problem, example=example)
    return sorted(path for path in directory.iterdir() if path.is_file())


def _file(blobs: Blobs, path: Path) -> Descriptor:
    """A further file, such as a wheel of px itself; its name is where other tools look for it."""
    content = path.read_bytes()
    return Descriptor(FILE, blobs.add(content), len(content), {TITLE: path.name})


def take_bundle(store: Store, text: str, digest: str = "", files: Path | None = None) -> Bundle:
    """Bring the objects of a bundle into the store: a file, a layout directory, or a name in a registry."""
    try:
        source = source_of(text)
        top = _top(source, digest)
        manifest = read_document(source, top)
        wanted = documents_in(manifest, BUNDLE)
        doing = console.waiting(f"Taking {console.counted(len(wanted), 'object')} from {text}")
        taken = take_all(store, source, wanted, doing=doing)
        titled = [at for row in manifest["layers"] if TITLE in (at := Descriptor.read(row)).annotations]
        kept = [_keep(source, at, files) for at in titled] if files else []
    except PxError as e:
        if e.code != "PX923" or not Path(text).is_file():
            raise
        raise PxError("PX952", source=text, problem=e.fields["problem"]) from e
    except DamagedError as e:
        raise PxError("PX952", source=text, problem=str(e)) from e
    except (OSError, KeyError, TypeError, ValueError, AttributeError, FetchError, RegistryError) as e:
        raise PxError("PX952", source=text, problem=bounds.unread(e)) from e
    console.detail(f"{len(taken)} of {len(wanted)} objects were new")
    return Bundle(top.digest, tuple(wanted), tuple(kept), sum(at.size for at in wanted.values()))


def _top(source: Source, digest: str) -> Descriptor:
    tops = manifests(source)
    if len(tops) != 1:
        raise DamagedError("it has more than one manifest")
    if digest and digest != tops[0].digest:
        raise DamagedError(f"its digest is {tops[0].digest}, not {digest}")
    return tops[0]


def _keep(source: Source, at: Descriptor, directory: Path) -> str:
    name = at.annotations[TITLE]
    if name != Path(name).name or name in ("", ".", ".."):
        raise DamagedError(f"{name!r} is not the name of a file")
    with source.open(at) as f:
        content = f.read(at.size + 1)
    if digest_of(content) != at.digest:
        raise DamagedError(f"{name} has another digest")
    write_atomically(directory / name, content)
    return name
