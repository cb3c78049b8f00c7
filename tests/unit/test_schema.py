"""The schema of ``[tool.px]``: what editors and validate-pyproject accept is what px accepts."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from validate_pyproject import api, errors, plugins

from px import bounds, schema
from px.errors import PxError
from px.project.manifest import Manifest
from px.sandbox.manifest import read_manifest
from px.sandbox.schema import encoded
from tests.conftest import REPO

PAGES = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md")), *sorted((REPO / "examples").rglob("*.md"))]
PROJECT = '[project]\nname = "shop"\nversion = "1"\n'


@pytest.fixture(scope="module")
def validate() -> api.Validator:
    return api.Validator(plugins=[plugins.PluginWrapper("px", cast("Any", schema.tool_schema))])


def px_refuses(path: Path) -> str | None:
    """px's own complaint about a manifest, if it has one."""
    try:
        Manifest.read(path)
        read_manifest(path)
    except PxError as e:
        return " ".join([e.what, *e.why, *e.fix])
    return None


def blocks() -> list[tuple[str, str]]:
    """Every block of TOML in the documentation that has settings of px."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            found += [(page.name, block)] if "tool.px" in block else []
    return found


def test_the_shipped_file_is_the_one_that_the_code_makes() -> None:
    """``make docs`` writes it."""
    assert Path(str(REPO / "src/px/data/partial-px.json")).read_text(encoding="utf-8") == encoded()


def test_it_has_the_form_that_schemastore_takes() -> None:
    found = schema.tool_schema("px")
    jsonschema.Draft7Validator.check_schema(found)
    assert found["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert found["$id"].endswith("/partial-px.json")

    def described(name: str, node: dict[str, Any]) -> None:
        for key, value in node.get("properties", {}).items():
            assert value.get("description"), f"{name}.{key} has no description"
            described(f"{name}.{key}", value)

    described("tool.px", found)
    for one in (found, found["properties"]["sandbox"]):
        assert one["additionalProperties"] is False


def test_examples_and_defaults_fit_the_schema_itself() -> None:
    def check(node: dict[str, Any]) -> None:
        for value in node.get("properties", {}).values():
            shown = value.get("examples", []) + ([value["default"]] if "default" in value else [])
            for one in shown:
                jsonschema.validate(one, value, cls=jsonschema.Draft7Validator)
            check(value)

    check(schema.tool_schema("px"))


def test_validate_pyproject_finds_the_plugin() -> None:
    found = {e.name: e.value for e in entry_points(group="validate_pyproject.tool_schema")}
    written = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["entry-points"]
    assert written["validate_pyproject.tool_schema"] == {"px": "px.schema:tool_schema"}
    assert found.get("px") == "px.schema:tool_schema", (
        "px is installed from an older pyproject.toml: make .make/installed"
    )


def test_every_key_of_the_documentation_is_in_it() -> None:
    found = schema.tool_schema("px")["properties"]
    page = (REPO / "docs/reference/manifest.md").read_text(encoding="utf-8")
    own = set(re.findall(r"^\| `\[tool\.px(?:\.(\w+))?\](?: (\w+))?`", page, re.MULTILINE))
    assert {a or b for a, b in own} == set(found)
    sandbox = (REPO / "docs/reference/sandbox-manifest.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|", sandbox, re.MULTILINE)
    assert set(rows) == set(found["sandbox"]["properties"])


def test_every_key_that_px_reads_is_documented_there() -> None:
    page = (REPO / "docs/reference/network.md").read_text(encoding="utf-8")
    for key in schema.tool_schema("px")["properties"]["sandbox"]["properties"]["network"]["properties"]:
        assert re.search(rf"^{key} = ", page, re.MULTILINE), key


@pytest.mark.parametrize(("page", "block"), blocks(), ids=lambda value: value if str(value).endswith(".md") else "")
def test_every_example_of_the_documentation_is_accepted(
    page: str, block: str, validate: api.Validator, tmp_path: Path
) -> None:
    parsed = bounds.parse_toml(block)
    text = block if "project" in parsed else PROJECT + block
    validate(tomllib.loads(text))
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    assert px_refuses(path) is None, page


def test_there_are_examples() -> None:
    assert len(blocks()) >= 5


MISTAKES = {
    "a table that does not exist": ("[tool.px.sandbx]\nauto = true", "sandbx"),
    "a misspelt key": ("[tool.px.sandbox]\nbse = 'debian-12'", "bse"),
    "a base that is a number": ("[tool.px.sandbox]\nbase = 12", "base must be string"),
    "a word for a boolean": ("[tool.px.sandbox]\nauto = 'yes'", "auto must be boolean"),
    "capabilities as a list": ("[tool.px.sandbox]\ncapabilities = ['postgres']", "capabilities must be object"),
    "a capability that px does not have": ("[tool.px.sandbox.capabilities]\npostgress = true", "postgress"),
    "a capability that is a number": ("[tool.px.sandbox.capabilities]\npostgres = 1", "postgres must be boolean"),
    "a capability outside of its table": ("[tool.px.sandbox]\npostgres = true", "postgres"),
    "a pattern that is no list": ("[tool.px.sandbox]\nexclude = '*.mp4'", "exclude must be array"),
    "a list with a number": ("[tool.px.sandbox]\nexclude = [1]", "exclude[0] must be string"),
    "a mode of git": ("[tool.px.sandbox]\ngit = 'write'", "git must be one of"),
    "a mode of the network": ("[tool.px.sandbox.network]\nmode = 'off'", "mode must be one of"),
    "the network as a word": ("[tool.px.sandbox]\nnetwork = 'none'", "network must be object"),
    "a key of the network": ("[tool.px.sandbox.network]\nalow = []", "alow"),
    "a rule with a space": ("[tool.px.sandbox.network]\nallow = ['a b']", "allow[0] must match pattern"),
    "rules without their mode": ("[tool.px.sandbox.network]\nmode = 'none'\nallow = ['a.org']", "allow must contain"),
    "pins that are a table": ("[tool.px.sandbox.pins]\nfile = 'x'", "pins must be string"),
    "read-only as a number": ("[tool.px.sandbox]\nread-only = 1", "read-only must be boolean"),
    "headers for a build": ("[tool.px.sandbox.build]\npycurl = ['opensl']", "pycurl[0] must be one of"),
    "a test command that is one word": ("[tool.px]\ntest = 'pytest -q'", "test must be array"),
    "a variable that is a number": ("[tool.px.env]\nPORT = 8000", "PORT must be string"),
    "a variable that cannot exist": ("[tool.px.env]\n'A=B' = 'x'", "env"),
    "a cache that is a list": ("[tool.px]\ncache = ['a']", "cache must be string"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_by_name_by_the_schema_and_by_px(
    name: str, validate: api.Validator, tmp_path: Path
) -> None:
    text, said = MISTAKES[name]
    path = tmp_path / "pyproject.toml"
    path.write_text(f"{PROJECT}{text}\n")
    with pytest.raises(errors.ValidationError) as caught:
        validate(tomllib.loads(path.read_text()))
    message = str(caught.value).replace("`", "").splitlines()[0]
    assert "tool.px" in message
    assert said in message, message
    assert px_refuses(path) is not None


def test_what_px_says_about_a_mistake_names_it_too(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    for text, _ in MISTAKES.values():
        path.write_text(f"{PROJECT}{text}\n")
        complaint = px_refuses(path) or ""
        assert "tool.px" in complaint or f"{path}:5" in complaint, (text, complaint)


def test_the_file_is_json_that_anybody_can_read() -> None:
    assert json.loads(encoded()) == schema.tool_schema("px")
