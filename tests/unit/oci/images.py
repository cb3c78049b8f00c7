"""Small images to test with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from px.oci.blobs import Blobs, TreeRef
from px.oci.compress import GZIP
from px.oci.config import BuiltImage, ImageSpec, LayerUse, build_image
from px.oci.documents import OCI, Platform
from px.oci.layout import Release, release
from px.oci.registry.reference import parse
from px.store.canonical import Value, oid_of
from px.store.objects import Draft, Payload, Store

if TYPE_CHECKING:
    from px.home import Home

AMD64 = Platform("linux", "amd64")
ARM64 = Platform("linux", "arm64")
CREATED = 1_700_000_000


@dataclass
class Files:
    """The content of a layer: path -> bytes, ``->target`` for a symbolic link, ``=target`` for a hard link."""

    content: dict[str, bytes | str]
    modes: dict[str, int] = field(default_factory=dict)

    def store(self, store: Store) -> str:
        """Put it into the store as a ``layer`` object."""
        described: list[Value] = [
            [path, hashlib.sha256(repr(value).encode()).hexdigest(), self.modes.get(path, 0)]
            for path, value in sorted(self.content.items())
        ]
        return store.ensure("layer", oid_of("test", described), self._make)

    def store_in(self, home: Home) -> str:
        return self.store(Store(home))

    def _make(self, draft: Draft) -> Payload:
        tree = draft.tree()
        late = []
        for path, value in sorted(self.content.items()):
            if isinstance(value, bytes):
                tree.file(path, value, self.modes.get(path, 0o644))
            elif value.startswith("->"):
                tree.symlink(path, value[2:])
            elif value.startswith("="):
                late.append((path, value[1:]))
            else:
                tree.directory(path, self.modes.get(path, 0o755))
        for path, target in late:
            tree.hardlink(path, target)
        return {"tree": tree.finish()}


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that do not compress and are the same every time."""
    import random

    return random.Random(seed).randbytes(size)


def make_image(
    home: Home,
    base: Files,
    app: Files,
    *,
    platform: Platform = AMD64,
    compression: str = GZIP,
    format: str = OCI,  # noqa: A002
    spec: ImageSpec | None = None,
) -> tuple[Blobs, BuiltImage]:
    """An image of two layers: ``base`` at the root, owned by root, and ``app`` at /app, owned by uid 1000."""
    store, blobs = Store(home), Blobs(home)
    layers = [
        LayerUse(blobs.store_layer(store, [TreeRef("layer", base.store(store))], compression=compression), "px: base"),
        LayerUse(
            blobs.store_layer(
                store, [TreeRef("layer", app.store(store), "app", (1000, 1000))], compression=compression
            ),
            "px: app",
        ),
    ]
    spec = spec or ImageSpec(
        platform,
        CREATED,
        env={"PATH": "/bin"},
        entrypoint=("/app/run.sh",),
        labels={"px.sbx_id": "0" * 64},
        annotations={"org.opencontainers.image.title": "demo"},
    )
    return blobs, build_image(blobs, spec, layers, format=format)


def make_release(blobs: Blobs, *images: BuiltImage, names: tuple[str, ...] = ("px.local/demo:1.0",)) -> Release:
    return release(blobs, images, tuple(parse(name) for name in names))
