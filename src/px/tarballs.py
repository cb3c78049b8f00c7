"""Python's tarfile, with bounds: for layers of images, archives of images and builds of CPython."""

from __future__ import annotations

import itertools
import struct
import tarfile
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from px import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

# What holds names and other fields for the member that follows; tarfile reads such a header into memory.
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


# Long names that follow one another are read by recursion; numbers and texts are converted without a check.
_BROKEN = (RecursionError, ValueError, OverflowError, EOFError, LookupError, TypeError, struct.error)


class _Member(tarfile.TarInfo):
    """A member whose header says nothing impossible."""

    # tarfile's own documentation of this class says that subclasses may replace it.
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        # A negative size leads tarfile back to where it was, for ever.
        if self.size < 0 or (self.type in _EXTENSIONS and self.size > bounds.HEADER):
            # Not InvalidHeaderError, which tarfile takes for the end of the archive.
            raise tarfile.ReadError("a damaged header")
        return cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]


def open_tar(file: BinaryIO, mode: str) -> tarfile.TarFile:
    """As :func:`tarfile.open`.  Whatever is wrong with the archive is a :class:`tarfile.TarError`."""
    try:
        return tarfile.open(fileobj=file, mode=mode, tarinfo=_Member)  # type: ignore[call-overload,no-any-return]
    except _BROKEN as e:
        raise tarfile.ReadError(f"it is damaged ({type(e).__name__})") from e


def members(archive: tarfile.TarFile, *, forget: bool = False) -> Iterator[tarfile.TarInfo]:
    """The members, not too many.  Whatever is wrong with one is a :class:`tarfile.TarError`.

    With ``forget``, the archive does not keep them: the links of a stream are not looked up.
    """
    for count in itertools.count():
        try:
            found = archive.next()
        except _BROKEN as e:
            raise tarfile.ReadError(f"it is damaged ({type(e).__name__})") from e
        if found is None:
            return
        if count >= bounds.MEMBERS:
            raise tarfile.ReadError("it has too many members")
        yield found
        if forget:
            archive.members.clear()  # type: ignore[attr-defined]


def unpacked_zstd(file: BinaryIO) -> BinaryIO:
    """The content of zstd data.  Damage is a :class:`tarfile.TarError`."""
    return cast("BinaryIO", _Zstd(file))


class _Zstd:
    """Where a stream breaks, the library raises errors of its own."""

    def __init__(self, file: BinaryIO):
        import zstandard

        self._file, self._error = file, zstandard.ZstdError
        # px writes one frame for each block; without read_across_frames only the first would be read.
        self._stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except self._error as e:
            raise tarfile.ReadError(f"damaged zstd data: {e}") from e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
