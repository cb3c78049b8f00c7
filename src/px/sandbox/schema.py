"""The JSON schema of ``[tool.px]``, made from the rows by which px itself checks it.

``make docs`` writes it to ``data/partial-px.json``: in the form of SchemaStore, whose editors complete and check
``pyproject.toml``, and for validate-pyproject (:mod:`px.schema`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from px.project import manifest as project
from px.project.keys import Kind
from px.sandbox.manifest import NETWORK_KEYS, SANDBOX_KEYS
from px.sandbox.needs.capabilities import table

if TYPE_CHECKING:
    from px.project.keys import Key

ID = "https://json.schemastore.org/partial-px.json"
# No control character of C, as in a variable of the environment: its name ends at =, and all of it at a zero byte.
_VARIABLE, _NO_ZERO = "^[^=\\u0000]+$", "^[^\\u0000]*$"
_TYPES: dict[Kind, str | list[str]] = {
    Kind.STRING: "string",
    Kind.BOOLEAN: "boolean",
    Kind.STRINGS: "array",
    Kind.TABLE: "object",
    Kind.COUNT: ["integer", "string", "boolean"],
}


def schema() -> dict[str, Any]:
    """The whole schema: what stands under ``[tool.px]``."""
    found = _object(project.KEYS)
    found["properties"]["env"] |= {
        "propertyNames": {"pattern": _VARIABLE},
        "additionalProperties": {"type": "string", "pattern": _NO_ZERO},
    }
    found["properties"]["sandbox"] |= _sandbox()
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": ID,
        "title": "px",
        "description": "px: deterministic sandboxes for Python. These are the settings in [tool.px].",
        **found,
    }


def encoded() -> str:
    """The file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _object(keys: tuple[Key, ...]) -> dict[str, Any]:
    ordered = sorted(keys, key=lambda key: key.name)
    return {"type": "object", "additionalProperties": False, "properties": {key.name: _value(key) for key in ordered}}


def _value(key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"description": key.meaning, "type": _TYPES[key.kind]}
    if key.kind is Kind.STRINGS:
        found["items"] = {"type": "string", "pattern": key.pattern or _NO_ZERO}
    if key.kind is Kind.COUNT:
        found |= {"minimum": 0, "maximum": key.most, "pattern": f"^({'|'.join(key.choices)})$"}
    elif key.choices:
        found["enum"] = list(key.choices)
    if key.default is not None:
        found["default"] = key.default
    if key.example is not None:
        found["examples"] = [key.example]
    return found | (_object(key.keys) if key.keys else {})


def _sandbox() -> dict[str, Any]:
    found = _object(SANDBOX_KEYS)
    names = {name: {"type": "boolean", "description": row.summary} for name, row in table().items()}
    capability = {"type": "string", "enum": list(names)}
    found["properties"]["capabilities"] |= {"additionalProperties": False, "properties": names}
    found["properties"]["build"] |= {"additionalProperties": {"type": "array", "items": capability}}
    found["properties"]["network"] |= _only_with_allow()
    return found


def _only_with_allow() -> dict[str, Any]:
    """Rules mean something with one mode only, which a table with rules need not name."""
    others = [mode for mode in next(key for key in NETWORK_KEYS if key.name == "mode").choices if mode != "allow"]
    named = {"required": ["mode"], "properties": {"mode": {"enum": others}}}
    nothing = {"properties": {"allow": {"maxItems": 0, "description": "has a meaning with mode = 'allow' only"}}}
    return {"if": named, "then": nothing}
