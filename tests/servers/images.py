"""Images that a provider pulls: real ones, from a real registry, unpacked layer by layer."""

from __future__ import annotations

import asyncio
import atexit
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from px.oci.image import ReadLayer, read_images
from px.oci.sources import source_of


@dataclass(frozen=True)
class Pulled:
    """An image on this machine."""

    layers: tuple[Path, ...]
    env: dict[str, str]


async def pull(reference: str) -> Pulled | None:
    """The image of this reference; None for those of public registries, in whose place the servers have their own."""
    return await asyncio.to_thread(_pulled, reference) if "@sha256:" in reference else None


@cache
def _pulled(reference: str) -> Pulled:
    (image,) = read_images(source_of(reference, insecure=True))
    env = dict(str(item).split("=", 1) for item in image.config["config"].get("Env", ()))
    return Pulled(tuple(_unpacked(layer) for layer in image.layers), env)


def _unpacked(layer: ReadLayer) -> Path:
    target = _directory() / layer.diff_id.partition(":")[2]
    if not target.is_dir():
        target.mkdir()
        with layer.open() as packed, subprocess.Popen(["tar", "-xz", "-C", str(target)], stdin=subprocess.PIPE) as tar:
            assert tar.stdin is not None
            while chunk := packed.read(1 << 20):
                tar.stdin.write(chunk)
            tar.stdin.close()
        assert tar.returncode == 0
    return target


@cache
def _directory() -> Path:
    kept = tempfile.TemporaryDirectory(prefix="px-provider-images-")
    atexit.register(kept.cleanup)
    return Path(kept.name)
