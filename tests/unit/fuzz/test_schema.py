"""Whatever stands in ``[tool.px]``: the schema and px say yes to the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from px import schema
from px.errors import PxError
from px.project.keys import Key, Kind
from px.project.manifest import KEYS, Manifest
from px.sandbox.manifest import NETWORK_KEYS, SANDBOX_KEYS, read_manifest

VALIDATOR = jsonschema.Draft7Validator(schema.tool_schema("px"))
HOSTS = ["a.org", "*.example.org:443", "10.0.0.0/8:22"]
WRONG = st.sampled_from([1, 2.5, True, "word", [], [1], {}, {"a": 1}, ["a"]])
RIGHT: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.STRING: st.sampled_from(["debian-12", "x"]),
    Kind.BOOLEAN: st.booleans(),
    Kind.STRINGS: st.lists(st.sampled_from(["a", "*.mp4"]), max_size=2),
    Kind.TABLE: st.just({}),
}
INSIDE: dict[str, st.SearchStrategy[Any]] = {
    "capabilities": st.dictionaries(
        st.sampled_from(["postgres", "xml", "postgress"]), st.booleans() | WRONG, max_size=2
    ),
    "build": st.dictionaries(st.just("pycurl"), st.lists(st.sampled_from(["openssl", "opensl"])) | WRONG, max_size=1),
    "env": st.dictionaries(st.sampled_from(["A", "B"]), st.just("x") | WRONG, max_size=2),
    "allow": st.lists(st.sampled_from(HOSTS), max_size=2),
}


def value(key: Key) -> st.SearchStrategy[Any]:
    if key.choices:
        return st.sampled_from(key.choices) | WRONG
    if key.keys:
        return table(key.keys) | WRONG
    return INSIDE.get(key.name, RIGHT[key.kind]) | WRONG


def table(keys: tuple[Key, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key.name: value(key) for key in keys} | {"unknown": WRONG})


WHOLE = table(tuple(key for key in KEYS if key.name != "sandbox")) | st.fixed_dictionaries(
    {"sandbox": table(SANDBOX_KEYS)}
)


@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(WHOLE)
def test_the_schema_and_px_agree(tmp_path: Path, found: dict[str, Any]) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(tomlkit.dumps({"project": {"name": "a", "version": "1"}, "tool": {"px": found}}))
    try:
        Manifest.read(path)
        read_manifest(path)
        accepted = True
    except PxError:
        accepted = False
    assert VALIDATOR.is_valid(found) == accepted, found


def test_every_row_is_tried() -> None:
    assert {key.kind for key in (*KEYS, *SANDBOX_KEYS, *NETWORK_KEYS)} == set(Kind)
