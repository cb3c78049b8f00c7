"""The encoder behind every id: fixed vectors, and what it must refuse."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from px.store.canonical import canonical_encode, decode, oid_of

VECTORS: list[tuple[str, Any, bytes]] = [
    ("source", {"sha256": "00", "size": 0}, b'["source",{"sha256":"00","size":0}]'),
    (
        "profile",
        {"b": [1, True, None], "a": {"y": "", "x": -1}},
        b'["profile",{"a":{"x":-1,"y":""},"b":[1,true,null]}]',
    ),
    (
        "layer",
        {"tree": [["f", "é/日本", 420, 3, "ab"]]},
        b'["layer",{"tree":[["f","\\u00e9/\\u65e5\\u672c",420,3,"ab"]]}]',
    ),
    ("x", '\U0001f600"\\\n', b'["x","\\ud83d\\ude00\\"\\\\\\n"]'),
]


@pytest.mark.parametrize(("kind", "payload", "encoded"), VECTORS)
def test_vectors(kind: str, payload: Any, encoded: bytes) -> None:
    assert canonical_encode(kind, payload) == encoded
    assert oid_of(kind, payload) == hashlib.sha256(encoded).hexdigest()
    assert decode(encoded)[0] == kind


def test_the_documented_vectors_are_these() -> None:
    from tests.conftest import REPO

    page = (REPO / "docs/reference/canonical-encoding.md").read_text()
    for kind, payload, encoded in VECTORS:
        assert encoded.decode() in page
        assert oid_of(kind, payload) in page


@pytest.mark.parametrize(
    "payload", [1.5, {"a": float("nan")}, {1: "a"}, b"bytes", {"a": {1, 2}}, "\ud800", {"\udfff": 1}]
)
def test_refuses_what_has_no_one_spelling(payload: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        canonical_encode("x", payload)


def test_order_of_insertion_does_not_matter() -> None:
    assert oid_of("x", {"a": 1, "b": 2}) == oid_of("x", {"b": 2, "a": 1})
