"""A component for Metaflow's own cards."""

from __future__ import annotations

from typing import Any

from metaflow.cards import MetaflowCardComponent


class SandboxInfo(MetaflowCardComponent):
    """The sandbox of this task, as a table: ``current.card.append(SandboxInfo())``."""

    def render(self) -> dict[str, Any]:
        from metaflow.plugins.cards.card_modules.basic import TableComponent

        from metaflow_extensions.sandbox.plugins.report.tasks import facts_so_far, packages, rows

        found = facts_so_far()
        shown = rows(found)
        if found.in_sandbox:
            shown.append(("Packages", str(packages().total)))
        table: dict[str, Any] = TableComponent(headers=["Sandbox", ""], data=[list(row) for row in shown]).render()
        return table
