"""Have the files changed? The part of a project's record that the warm path reads, without any heavy import."""

import os

from px import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

VERSION = 3
_TABLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
# A file that was written this recently can change again without its time showing it.
_RACY_NS = 2_000_000_000


def home_root() -> str:
    """``PX_HOME``, or ``~/.px``."""
    configured = os.environ.get("PX_HOME")
    return os.path.abspath(os.path.expanduser(configured)) if configured else os.path.expanduser("~/.px")


def record_name(root: str) -> str:
    """The file name of a project's record: a hash of where it lies."""
    try:
        from _blake2 import blake2b  # what hashlib gives too, without loading OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(os.fsencode(root), digest_size=20).hexdigest() + ".json"


def read(path: str) -> "dict[str, Any] | None":
    """A record as it is on disk; None if there is none that this version can read."""
    try:
        with open(path, encoding="utf-8") as f:
            raw = _parse(f.read())
        return raw if raw["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _parse(text: str) -> "Any":
    try:
        from _json import make_scanner  # json's own parser, without the regular expressions that it imports
    except ImportError:
        import json

        return json.loads(text)
    try:
        return make_scanner(_Strict())(text, 0)[0]  # type: ignore[arg-type]
    except StopIteration as e:
        raise ValueError(f"no JSON: {text[:40]!r}") from e


class _Strict:
    """How the scanner shall read: as ``json.loads`` does."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def look(root: str, name: str, known: "list[Any] | None", recorded_at: int) -> "list[Any]":
    """[size, mtime, ctime, inode, sha256] of an input, or [] if it is not there; read only if it may have changed."""
    path = os.path.join(root, name)
    try:
        st = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    signature = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]
    if known and known[:4] == signature and st.st_mtime_ns < recorded_at - _RACY_NS:
        return known
    import hashlib

    with open(path, "rb") as f:
        return [*signature, hashlib.sha256(f.read()).hexdigest()]


def unchanged(raw: "dict[str, Any]") -> bool:
    """Whether every input has the content that it had when the record was written."""
    root, inputs, at = raw["root"], raw["inputs"], raw["recorded_at"]
    return all(look(root, name, known, at)[4:] == known[4:] for name, known in inputs.items())


def matching(directory: str, pattern: str) -> "list[str]":
    """The files that match a pattern, as paths from the directory."""
    from glob import glob

    found = glob(pattern, root_dir=directory, recursive=True)
    return [name for name in found if os.path.isfile(os.path.join(directory, name))]


def look_at_table(name: str, known: "list[Any] | None" = None, recorded_at: int = 0) -> "list[Any]":
    """Like :func:`look`, for one of px's own tables; the locks of bases may lie elsewhere (``PX_BASES``)."""
    elsewhere = os.environ.get("PX_BASES")
    if elsewhere and name.startswith("bases/"):
        return look(elsewhere, name.removeprefix("bases/"), known, recorded_at)
    return look(_TABLES, name, known, recorded_at)


def made_alike(built: "dict[str, Any]", recorded_at: int) -> bool:
    """Whether this px would make the same of the same inputs: by its version, and the tables that it would read."""
    tables = built["tables"].items()
    same = all(look_at_table(name, known, recorded_at)[4:] == known[4:] for name, known in tables)
    return built["made_by"] == __version__ and same


def digest(entries: "Iterable[tuple[str, list[Any]]]") -> str:
    """One hash over names and contents."""
    import hashlib
    import json

    text = json.dumps([[name, entry[4] if entry else None] for name, entry in entries])
    return hashlib.sha256(text.encode()).hexdigest()
