"""``px sandbox add`` and ``remove``: the change, and nothing but the change."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from px.errors import PxError
from px.sandbox.edit import set_capabilities, unset_capabilities
from px.sandbox.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

LAYOUTS = {
    "nothing": "[project]\nname = 'x' # the name\n",
    "empty file": "",
    "tool table": "[project]\nname = 'x'\n\n[tool.ruff]\nline-length = 100\n\n# last words\n",
    "sandbox only": "[tool.px.sandbox]\nbase = 'debian-12' # base\n\n[tool.other]\nx = 1\n",
    "capabilities": "[tool.px.sandbox.capabilities]\n# db\npostgres = true   # yes\n\n[tool.other]\nx = 1\n",
    "inline": "[tool.px.sandbox]\ncapabilities = { postgres = true } # inline\nauto = true\n",
    "inline empty": "[tool.px.sandbox]\ncapabilities = {}\n",
    "dotted": "[tool.px]\nsandbox.auto = true\nsandbox.capabilities.postgres = true\n",
    "all dotted": "tool.px.sandbox.base = 'debian-12'\n",
    "out of order": "[tool.px.sandbox]\nauto = true\n[project]\n[tool.px.sandbox.capabilities]\nxml = true\n",
    "split tool": "[tool.a]\nx = 1\n[project]\nname = 'x'\n[tool.px.sandbox]\nauto = true\n[tool.b]\ny = 2\n",
    "crlf": "[project]\r\nname = 'x'\r\n\r\n[tool.px.sandbox.capabilities]\r\npostgres = true\r\n",
    "no newline": "[tool.px.sandbox.capabilities]\nxml = true",
    "px env": "[tool.px.env]\nA = 'b'\n",
}


def with_curl(document: dict[str, Any]) -> dict[str, Any]:
    document.setdefault("tool", {}).setdefault("px", {}).setdefault("sandbox", {}).setdefault("capabilities", {})[
        "curl"
    ] = True
    return document


@pytest.mark.parametrize("name", LAYOUTS)
def test_add_keeps_every_line_that_was_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pyproject.toml"
    before = LAYOUTS[name].encode()
    path.write_bytes(before)
    assert set_capabilities(path, ["curl"], enabled=True) == ("curl",)
    after = path.read_bytes()
    assert tomllib.loads(after.decode()) == with_curl(tomllib.loads(before.decode()))
    kept = [line for line in before.decode().splitlines() if line and "capabilities =" not in line]
    assert [line for line in kept if line not in after.decode().splitlines()] == []
    assert set_capabilities(path, ["curl"], enabled=True) == ()
    assert path.read_bytes() == after


@pytest.mark.parametrize("name", [n for n in LAYOUTS if "postgres" in LAYOUTS[n]])
def test_remove_takes_back_what_add_wrote(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(LAYOUTS[name].encode())
    set_capabilities(path, ["curl"], enabled=True)
    assert unset_capabilities(path, ["curl", "magic"]) == ("curl",)
    assert tomllib.loads(path.read_text()) == tomllib.loads(LAYOUTS[name])


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "inline empty"])
def test_add_and_remove_say_what_was_said_before(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(LAYOUTS[name].encode())
    set_capabilities(path, ["curl"], enabled=True)
    unset_capabilities(path, ["curl"])
    left = [line for line in path.read_text().splitlines() if line]
    assert [line for line in LAYOUTS[name].splitlines() if line] == left


def test_disable_and_enable_change_one_word(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    text = "[tool.px.sandbox.capabilities]\nPostgres = true # as the user spells it\n"
    path.write_text(text)
    assert set_capabilities(path, ["postgres"], enabled=False) == ("postgres",)
    assert path.read_text() == text.replace("true", "false")
    assert set_capabilities(path, ["postgres"], enabled=True) == ("postgres",)
    assert path.read_text() == text


def test_an_unknown_capability_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    with pytest.raises(PxError, match="PX901"):
        set_capabilities(path, ["curl", "postgers"], enabled=True)
    assert path.read_text() == "[project]\nname = 'x'\n"


def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("[project]\nname = 'x'\n")
    real.chmod(0o640)
    link = tmp_path / "pyproject.toml"
    link.symlink_to("real.toml")
    set_capabilities(link, ["curl"], enabled=True)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert read_manifest(link).enabled == {"curl"}


def test_remove_leaves_no_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    before = '[project]\nname = "a"\n\n[tool.uv]\npackage = false\n'
    path.write_text(before)
    set_capabilities(path, ["curl"], enabled=True)
    unset_capabilities(path, ["curl"])
    assert path.read_text().rstrip("\n") == before.rstrip("\n")
    path.write_text('[project]\nname = "a"\n')
    set_capabilities(path, ["curl"], enabled=True)
    unset_capabilities(path, ["curl"])
    assert "tool" not in path.read_text()
    kept = '[tool.px.sandbox]\nbase = "debian-13"\n\n[tool.px.sandbox.capabilities]\n# why there is none\ncurl = true\n'
    path.write_text(kept)
    unset_capabilities(path, ["curl"])
    assert path.read_text() == kept.replace("curl = true\n", "")
