"""``sbx_id``: the vectors of docs/reference/sandbox-id.md, and what the id depends on."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import pytest

from px.sandbox.definition import SBX_VERSION, SandboxDefinition
from tests.conftest import REPO

PAGE = (REPO / "docs" / "reference" / "sandbox-id.md").read_text(encoding="utf-8")
VECTORS = re.findall(r"```text\n(?P<encoded>\[\"sandbox\".*)\nsbx_id (?P<id>[0-9a-f]{64})\n```", PAGE)
DEFINITION = SandboxDefinition("a" * 64, frozenset({"xml", "postgres"}), "b" * 64, 1)


def test_the_documented_vectors() -> None:
    definitions = [
        SandboxDefinition("0" * 64, frozenset(), "1" * 64, 1),
        DEFINITION,
        replace(DEFINITION, capabilities=frozenset({"xml", "postgres", "imagecodecs"}), sbx_version=2),
    ]
    assert len(VECTORS) == len(definitions)
    for definition, (encoded, sbx_id) in zip(definitions, VECTORS, strict=True):
        assert definition.encoded == encoded.encode()
        assert definition.sbx_id == sbx_id == hashlib.sha256(encoded.encode()).hexdigest()


def test_the_order_of_capabilities_does_not_matter() -> None:
    assert replace(DEFINITION, capabilities=frozenset(["postgres", "xml"])).sbx_id == DEFINITION.sbx_id


@pytest.mark.parametrize(
    "change",
    [
        {"base_os_oid": "c" * 64},
        {"profile_oid": "c" * 64},
        {"sbx_version": SBX_VERSION + 1},
        {"capabilities": frozenset({"xml"})},
        {"capabilities": frozenset()},
    ],
    ids=str,
)
def test_every_input_changes_the_id(change: dict[str, object]) -> None:
    assert replace(DEFINITION, **change).sbx_id != DEFINITION.sbx_id  # type: ignore[arg-type]
