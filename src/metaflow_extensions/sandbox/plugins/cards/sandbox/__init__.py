"""``@card(type="sandbox")``: where Metaflow looks for it.

Every process that imports Metaflow imports this module, so what makes a card is imported when one is made.  Nothing
else may be in ``cards``: if it were loaded before Metaflow, Metaflow would take the folder for its own ``cards``.
"""

from __future__ import annotations

from typing import Any

from metaflow.plugins.cards.card_modules.card import MetaflowCard


class SandboxCard(MetaflowCard):
    """A page about the sandbox of a task.  The page of a join also has the tasks that it joins.

    Another step's tasks are shown by its name: ``@card(type="sandbox", options={"steps": ["train"]})``.
    """

    type = "sandbox"

    def __init__(self, options: Any = None, components: Any = None, graph: Any = None, flow: Any = None):
        self._options, self._graph = options, graph

    def render(self, task: Any) -> str:
        from metaflow_extensions.sandbox.plugins.report.page import page
        from metaflow_extensions.sandbox.plugins.report.tasks import own_facts, packages, shown_steps, whole

        steps = shown_steps(task.parent.id, self._options, self._graph)
        return page(task.pathspec, own_facts(task), packages(), whole(task, steps) if steps else None)


CARDS = [SandboxCard]
