"""The reference pages say what the tables and the code say."""

from __future__ import annotations

from px.sandbox.manifest import KEYS
from px.sandbox.needs.capabilities import table
from tests.conftest import REPO

REFERENCE = REPO / "docs" / "reference"


def test_every_capability_is_documented_with_its_packages() -> None:
    page = (REFERENCE / "capabilities.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert list(rows) == list(table())
    for name, capability in table().items():
        assert capability.summary in rows[name]
        for lists in capability.packages.values():
            assert [p for p in lists.runtime if f"`{p}`" not in rows[name]] == []


def test_every_key_of_the_manifest_is_documented() -> None:
    page = (REFERENCE / "sandbox-manifest.md").read_text(encoding="utf-8")
    for key in KEYS:
        assert f"| `{key}` |" in page
