"""Compression of layers.  The output is the same on every machine, with any CPU and any number of cores.

Python's own zlib will not do: it is whatever library Python was linked to, and its output differs between machines.  So
px pins two libraries to exact versions: libdeflate (package ``deflate``) for gzip and Zstandard (``zstandard``) for
zstd.  Their output was compared on x86-64 from SSE2 to AVX-512 and on aarch64, and was the same.  ISA-L is faster, but
its output depends on the CPU.  ``docs/reference/oci-images.md`` has the measurements.

The stream is split into blocks of a fixed size.  Each becomes a gzip member (RFC 1952) or a zstd frame (RFC 8878) of
its own, so all cores can work.  Both formats say that members in a row are one stream.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

GZIP, ZSTD = "gzip", "zstd"


@dataclass(frozen=True)
class Method:
    """One way to compress a layer.  ``identity`` has everything that the output depends on."""

    name: str
    package: str
    version: str
    level: int
    block: int
    sample: str
    """sha256 of the compressed sample.  A library that gives another result is not used."""

    @property
    def identity(self) -> str:
        return f"{self.name}:{self.package}=={self.version}:{self.level}:{self.block}"


METHODS = {
    # Level 2 of libdeflate is smaller and faster than zlib's level 6.  Higher levels save 1 to 3 % in twice the time.
    GZIP: Method(
        GZIP, "deflate", "0.9.0", 2, 1 << 20, "9bb6b907843fea067151d815f2464e1bcc1432d3a8ce2d7c285ed3304014ba01"
    ),
    # Frames of 4 MiB give 6 % less than frames of 1 MiB.  gzip, with its window of 32 KiB, gains nothing from them.
    ZSTD: Method(
        ZSTD, "zstandard", "0.25.0", 3, 4 << 20, "811f1a9c9183911a6e0a14e096483b5e06042616712e5ca7c90b00bf62b16858"
    ),
}


@dataclass(frozen=True)
class Compressed:
    """Digests and sizes of a compressed stream.  The digests are without ``sha256:``."""

    diff_id: str
    raw_size: int
    digest: str
    size: int


class Compressor:
    """Compresses what is given to :meth:`write`, in threads, and writes the result to ``out`` in order."""

    def __init__(self, method: Method, out: BinaryIO, *, threads: int | None = None):
        # Imported here: packing again what is already packed does not need it.
        from concurrent.futures import ThreadPoolExecutor

        self._method, self._out = method, out
        self._compress = block_function(method)
        self._threads = threads or cores()
        self._pool = ThreadPoolExecutor(self._threads)
        self._pending: deque[Future[bytes]] = deque()
        self._buffer = bytearray()
        self._raw, self._packed = hashlib.sha256(), hashlib.sha256()
        self._raw_size = self._size = 0

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= self._method.block:
            self._submit(bytes(memoryview(self._buffer)[: self._method.block]))
            del self._buffer[: self._method.block]

    def _submit(self, block: bytes) -> None:
        self._pending.append(self._pool.submit(self._compress, block))
        self._raw.update(block)
        self._raw_size += len(block)
        # Enough blocks ahead to keep every core busy while one block is slow.  The limit is for the memory.
        while len(self._pending) > 2 * self._threads + 2:
            self._collect()

    def _collect(self) -> None:
        packed = self._pending.popleft().result()
        self._packed.update(packed)
        self._size += len(packed)
        self._out.write(packed)

    def finish(self) -> Compressed:
        # An empty stream still needs one block: a file of no bytes is not valid gzip.
        if self._buffer or not self._raw_size:
            self._submit(bytes(self._buffer))
        while self._pending:
            self._collect()
        return Compressed(self._raw.hexdigest(), self._raw_size, self._packed.hexdigest(), self._size)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def compress(
    method: Method, produce: Callable[[Callable[[bytes], object]], object], out: BinaryIO, *, threads: int | None = None
) -> Compressed:
    """Compress what ``produce`` writes.  The result does not depend on ``threads``."""
    compressor = Compressor(method, out, threads=threads)
    try:
        produce(compressor.write)
        return compressor.finish()
    finally:
        compressor.close()


def method_of(name: str) -> Method:
    if name not in METHODS:
        raise PxError("PX903", problem=f"there is no compression called {name!r}", fix=["Use gzip or zstd."])
    return METHODS[name]


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


@cache
def block_function(method: Method) -> Callable[[bytes], bytes]:
    """The function that compresses one block.  Its output is checked with a sample first."""
    # The check is by output and not by version number, because digests depend on the output alone.
    function = _gzip(method.level) if method.name == GZIP else _zstd(method.level)
    if hashlib.sha256(function(sample())).hexdigest() != method.sample:
        raise PxError(
            "PX903",
            problem=f"the installed {method.package} does not compress as px expects",
            why=["An image must have the same digest on every machine, so px needs one exact version of this library."],
            fix=[f"Install that version: pip install --force-reinstall {method.package}=={method.version}"],
        )
    return function


def _gzip(level: int) -> Callable[[bytes], bytes]:
    import deflate

    def function(block: bytes) -> bytes:
        return bytes(deflate.gzip_compress(block, level))

    return function


def _zstd(level: int) -> Callable[[bytes], bytes]:
    import zstandard

    def function(block: bytes) -> bytes:
        # A new context for every block.  A context that is used again may keep state of the block before.
        return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(block)

    return function


def sample() -> bytes:
    """64 KiB of text with repetitions near and far, the same on every machine."""
    words = [hashlib.sha256(b"%d" % i).hexdigest()[: 3 + i % 11] for i in range(512)]
    # A random generator of its own, with the constants of C's rand: Python's `random` may change with its version.
    state, out = 1, []
    for _ in range(10_000):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        out.append(words[(state >> 16) * (state >> 22) % 512])
    return " ".join(out).encode()[: 1 << 16]
