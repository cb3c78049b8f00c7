"""How much px takes from archives and documents that others made.  Beyond it they are refused, with a PX error.

A hash in a lock says that a file is the one that was locked, not that it is harmless.  Each bound is far above what
real files need, and low enough that a hostile one costs seconds and a part of the memory, not the machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# --- archives ---------------------------------------------------------------------------------------------------------

# PyTorch with CUDA is one wheel of 2.5 GB in older versions, and 4.5 GB unpacked.
UNPACKED = 64 * GIB
# .deb and .apk files are unpacked in memory.  The largest in Debian, debug symbols aside, have a little over 2 GB.
IN_MEMORY = 4 * GIB
# Real packages shrink to a third or a tenth; data that is mostly zeros to a fiftieth.  deflate ends at 1:1032, xz and
# zstd at more than 1:7000.  Below FREE the ratio does not matter: a small test file may be nothing but zeros.
RATIO = 200
FREE = 128 * MIB
# Ansible, the largest by count that we know, has 60,000 files; a distribution's kernel headers have 30,000.
MEMBERS = 500_000
# The list of contents of a zip file: some 100 bytes for each member.
DIRECTORY = 32 * MIB
# xz -9 needs 65 MiB to decompress.  Its format allows 4 GiB, whatever the size of the data.
XZ_MEMORY = 256 * MIB
# The extended header of a member of a tar archive: names, times, attributes.
HEADER = 1 * MIB
# Of names: Linux has 255 bytes for a part and 4096 for the whole, and px's own directories come before it.
NAME, PATH, DEPTH = 255, 2048, 128

# --- documents --------------------------------------------------------------------------------------------------------

# Manifests and configs of images (registries themselves take 4 MiB at most), answers of registries, RECORD of a wheel.
DOCUMENT = 32 * MIB
# pyproject.toml, uv.lock, pylock.toml.  The locks of the largest workspaces have 10 MB.
LOCK = 64 * MIB
# Debian's index of all packages is 10 MB, and 60 MB unpacked.
INDEX = 512 * MIB
# Levels of tables, arrays and objects in one another.  Python's own readers give up at about 500.
LEVELS = 100


def unpacked(packed: int, most: int = UNPACKED) -> int:
    """How many bytes an archive of ``packed`` bytes may become."""
    return min(most, max(FREE, packed * RATIO))


def parse_json(content: bytes | str) -> Any:
    """Parse JSON.  Whatever is wrong with it is a ValueError."""
    try:
        return _shallow(json.loads(_bounded(content, DOCUMENT)))
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e


def parse_toml(content: bytes | str) -> dict[str, Any]:
    """Parse TOML.  Whatever is wrong with it is a ValueError."""
    import tomllib  # not every command needs it

    text = _bounded(content, LOCK)
    try:
        found: dict[str, Any] = tomllib.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e
    _shallow(found)
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read and parse a TOML file, not more of it than is allowed."""
    with path.open("rb") as f:
        return parse_toml(f.read(LOCK + 1))


def _bounded(content: bytes | str, limit: int) -> bytes | str:
    if len(content) > limit:
        raise ValueError(f"it is larger than {limit // MIB} MiB")
    return content


def _shallow(document: Any) -> Any:
    """Refuse what can be parsed, but would be too deep for whatever walks through it later (``a.a.a.a = 1``)."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > LEVELS:
            raise ValueError("it is nested too deeply")
        level = [
            item
            for found in level
            if isinstance(found, dict | list)
            for item in (found.values() if isinstance(found, dict) else found)
            if isinstance(item, dict | list)
        ]
    return document


def unread(error: Exception) -> str:
    """Why a document cannot be used, for an error of px: it cannot be fetched or opened, or is something else.

    What a parser says helps (``line 3 column 7``); the name of a key that is missing, or of an exception, does not.
    """
    said = getattr(error, "strerror", None) or getattr(error, "reason", None)
    if isinstance(error, ValueError):
        return f"its format is another: {error}"
    return str(said) if said else "its format is another"
