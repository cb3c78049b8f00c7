"""Compression: pinned bytes, whatever the number of threads; readable by other programs."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
from importlib.metadata import requires, version

import pytest
import zstandard
from packaging.requirements import Requirement

from px.errors import PxError
from px.oci import compress as module
from px.oci.compress import METHODS, Compressed, block_function, compress, method_of
from tests.unit.oci.images import noise


def data() -> bytes:
    """9 MB: several blocks of either method, the last one short, text and noise."""
    return module.sample() * 100 + noise(2_500_000) + b"end"


def packed(name: str, content: bytes, threads: int, piece: int = 99_991) -> tuple[bytes, Compressed]:
    out = io.BytesIO()

    def produce(write: object) -> None:
        assert callable(write)
        for start in range(0, len(content), piece):
            write(content[start : start + piece])

    done = compress(METHODS[name], produce, out, threads=threads)
    return out.getvalue(), done


@pytest.mark.parametrize("name", METHODS)
def test_threads_and_pieces_do_not_show(name: str) -> None:
    content = data()
    results = {packed(name, content, threads, piece)[0] for threads, piece in ((1, 99_991), (2, 4096), (7, 5 << 20))}
    assert len(results) == 1


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("gzip", "2b3bdd605e8568fcd4c65676f50556599b45beb79d8368988cb1f05fb42bb93f"),
        ("zstd", "47ea9011d837f0c470ba9589a293b3a31cc7743af81c11639393ce5d5351de1a"),
    ],
)
def test_the_bytes_are_pinned(name: str, digest: str) -> None:
    # A change here changes the digest of every image: it needs another pinned version, on purpose.
    assert packed(name, data(), 2)[1].digest == digest


def test_it_decompresses_to_what_it_was() -> None:
    content = data()
    zipped, done = packed("gzip", content, 2)
    assert gzip.decompress(zipped) == content
    assert done == Compressed(
        hashlib.sha256(content).hexdigest(), len(content), hashlib.sha256(zipped).hexdigest(), len(zipped)
    )
    frames, _ = packed("zstd", content, 2)
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(frames), read_across_frames=True)
    assert reader.read() == content


@pytest.mark.parametrize("name", METHODS)
def test_an_empty_stream_is_still_one(name: str) -> None:
    zipped, done = packed(name, b"", 2)
    assert zipped
    assert done.raw_size == 0


@pytest.mark.parametrize("method", METHODS.values(), ids=str)
def test_the_installed_version_is_the_pinned_one(method: module.Method) -> None:
    assert version(method.package) == method.version
    declared = [Requirement(text) for text in requires("px-sandbox") or []]
    pins = {r.name: str(r.specifier) for r in declared if r.marker is None}
    if method.package in pins:  # an installation made before the dependency was added does not know it
        assert pins[method.package] == f"=={method.version}"


def test_a_library_that_compresses_otherwise_is_refused() -> None:
    other = dataclasses.replace(METHODS["gzip"], level=9)
    with pytest.raises(PxError) as caught:
        block_function(other)
    assert "pip install --force-reinstall deflate==" in str(caught.value)


def test_an_unknown_method() -> None:
    with pytest.raises(PxError, match="PX903"):
        method_of("lzma")


def test_a_failing_source_stops_everything() -> None:
    def produce(write: object) -> None:
        assert callable(write)
        write(b"x" * 5_000_000)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        compress(METHODS["gzip"], produce, io.BytesIO())
