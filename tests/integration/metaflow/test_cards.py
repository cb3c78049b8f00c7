"""``@card(type="sandbox")`` and the table for Metaflow's default card, of a real flow in local sandboxes."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from .conftest import Server, Workspace

RUN = "Flow('CardedFlow').latest_run"
CARDS = "__import__('metaflow.cards').cards.get_cards"


def card(workspace: Workspace, step: str, kind: str, **env: str) -> str:
    """The HTML of a card of this type, of one task of the step."""
    return str(workspace.ask(f"{CARDS}({RUN}[{step!r}].task, type={kind!r})[0].get()", **env))


def test_the_cards_of_a_task_and_of_a_join(workspace: Workspace) -> None:
    workspace.run("carded.py", "run", "--with", "sandbox:image=debian-12,timeout=600", "--width", "1")
    metadata = workspace.ask(f"{RUN}['work'].task.metadata_dict")
    for phase in ("create", "start", "run"):
        assert float(metadata[f"sandbox-{phase}-seconds"]) >= 0
    assert json.loads(metadata["sandbox-limits"]) == {"timeout": "600"}
    page = card(workspace, "work", "sandbox")
    for fact in (metadata["sandbox-id"], metadata["sandbox-image"], "debian-12", "timeout 10 min", "requests"):
        assert fact in page
    assert "1 task" not in page, "the others are on the card of the join"
    whole = card(workspace, "join", "sandbox")
    assert "work: 1 task" in whole
    ids = workspace.ask(f"[t.metadata_dict['sandbox-id'] for t in {RUN}['work']]")
    assert all(sandbox in whole for sandbox in ids)
    assert not re.search(r"<script|https?://|@import|url\(", page + whole), "it loads nothing and runs nothing"
    table = _component(card(workspace, "work", "default"))
    assert table["data"][0] == ["Backend", "local"]
    assert ["Image", "debian-12"] in table["data"]


@pytest.mark.slow
def test_a_task_without_a_sandbox(workspace: Workspace) -> None:
    workspace.run("carded.py", "run", "--width", "1")
    assert "ran without a sandbox" in card(workspace, "work", "sandbox")
    assert "1 of those that were read ran without a sandbox" in card(workspace, "join", "sandbox")
    assert "without a sandbox" in str(_component(card(workspace, "work", "default")))


@pytest.mark.slow
def test_a_foreach_of_twenty(workspace: Workspace) -> None:
    workspace.run("carded.py", "run", "--with", "sandbox", "--max-workers", "4")
    whole = card(workspace, "join", "sandbox")
    assert "work: 20 tasks" in whole
    ids = workspace.ask(f"[t.metadata_dict['sandbox-id'] for t in {RUN}['work']]")
    assert len(ids) == 20
    assert all(sandbox in whole for sandbox in ids)
    assert len(whole) < 64 * 1024


@pytest.mark.slow
def test_the_cards_at_a_provider(workspace: Workspace, fresh: Server, s3: dict[str, str]) -> None:
    env = {**s3, **fresh.env, "METAFLOW_SANDBOX_LEASE_SECONDS": "1800"}
    workspace.run("carded.py", "run", "--with", fresh.kind, "--width", "2", **env)
    whole = card(workspace, "join", "sandbox", **s3)
    assert "work: 2 tasks" in whole
    found = workspace.ask(f"[t.metadata_dict for t in {RUN}['work']]", **s3)
    assert all(metadata["sandbox-id"] in whole for metadata in found)
    assert all(float(metadata[f"sandbox-{p}-seconds"]) >= 0 for metadata in found for p in ("create", "start", "run"))
    assert all(phase in whole for phase in ("Creating took", "Starting took", "Running took"))


def _component(page: str) -> dict[str, Any]:
    """The table about the sandbox in the data of a default card, which is JSON in base64."""
    texts = [base64.b64decode(found) for found in re.findall(r"[\"'>]([A-Za-z0-9+/]{400,}=*)[\"'<]", page)]
    text = next(text for text in texts if b'"Sandbox"' in text).decode()
    start = text.index('{"type": "table", "columns": ["Sandbox"')
    table: dict[str, Any] = json.JSONDecoder().raw_decode(text[start:])[0]
    return table
