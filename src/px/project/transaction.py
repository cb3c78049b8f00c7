"""All or nothing for commands that change the project: M and L go back to what they were if anything fails."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from px.store.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@contextmanager
def restoring(paths: Sequence[Path]) -> Iterator[None]:
    """Put the files back, byte for byte, if the block ends with an exception (Ctrl-C included)."""
    before = {path: (path.read_bytes(), path.stat().st_mode & 0o7777) if path.is_file() else None for path in paths}
    try:
        yield
    except BaseException:
        for path, known in before.items():
            _restore(path, known)
        raise


def _restore(path: Path, known: tuple[bytes, int] | None) -> None:
    if known is None:
        path.unlink(missing_ok=True)
    elif not path.is_file() or path.read_bytes() != known[0]:
        write_atomically(path, known[0], mode=known[1])
