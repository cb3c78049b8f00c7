"""The plugin of validate-pyproject: it hands out the schema of ``[tool.px]`` that comes with px."""

from __future__ import annotations

import json
from typing import Any

from px import DATA


def tool_schema(_: str) -> dict[str, Any]:
    """px: deterministic sandboxes for Python. Checks the settings in ``[tool.$tool]``."""
    with open(f"{DATA}/partial-px.json", encoding="utf-8") as f:
        found: dict[str, Any] = json.load(f)
    return found
