"""The encoder behind every id in px.  ``docs/reference/canonical-encoding.md`` specifies it, with test vectors."""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

Value: TypeAlias = "None | bool | int | str | list[Value] | tuple[Value, ...] | dict[str, Value]"


def canonical_encode(kind: str, payload: Value) -> bytes:
    """Encode ``[kind, payload]`` as JSON that any language can reproduce byte for byte.

    The output is ASCII, with sorted object keys and without white space.  Floats are refused, because languages
    write the same float in different ways.
    """
    _check(payload, kind)
    text = json.dumps([kind, payload], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def oid_of(kind: str, payload: Value) -> str:
    return hashlib.sha256(canonical_encode(kind, payload)).hexdigest()


def decode(encoded: bytes) -> tuple[str, Value]:
    """Undo :func:`canonical_encode`.  The caller must have checked the hash."""
    kind, payload = json.loads(encoded)
    return kind, payload


def _check(value: Value, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: keys must be strings, not {type(key).__name__}")
            _check_text(key, where)
            _check(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, where)
    elif isinstance(value, str):
        _check_text(value, where)
    # Refused here, before json.dumps, which would also write floats and turn keys that are numbers into strings.
    elif value is not None and not isinstance(value, bool | int):
        raise TypeError(f"{where}: {type(value).__name__} has no canonical form")


def is_text(value: str) -> bool:
    """Whether an id can be made of it.  A lone surrogate is not a character.

    Python has them where a file name is not UTF-8 (surrogateescape), and its JSON writes them as \\ud800, which other
    languages refuse to read.
    """
    return value.isascii() or not any("\ud800" <= ch <= "\udfff" for ch in value)


def _check_text(value: str, where: str) -> None:
    if not is_text(value):
        raise ValueError(f"{where}: {value!r} is not valid Unicode text")
