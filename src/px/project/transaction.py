"""All or nothing for commands that change the project: M and L go back to what they were if anything fails."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from px import console
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
        restored = [path.name for path, known in before.items() if _restore(path, known)]
        if restored:
            console.info(f"Nothing was changed: {' and '.join(restored)} as before.")
        raise


def _restore(path: Path, known: tuple[bytes, int] | None) -> bool:
    """Whether there was anything to put back."""
    if known is None:
        there = path.is_file()
        path.unlink(missing_ok=True)
        return there
    if path.is_file() and path.read_bytes() == known[0]:
        return False
    write_atomically(path, known[0], mode=known[1])
    return True
