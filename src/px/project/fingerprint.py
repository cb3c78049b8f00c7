"""Have the files changed? The part of a project's record that the warm path reads, without any heavy import."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

VERSION = 2
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


def digest(entries: "Iterable[tuple[str, list[Any]]]") -> str:
    """One hash over names and contents."""
    import hashlib
    import json

    text = json.dumps([[name, entry[4] if entry else None] for name, entry in entries])
    return hashlib.sha256(text.encode()).hexdigest()
