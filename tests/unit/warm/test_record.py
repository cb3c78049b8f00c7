"""A project's record on the warm path: read without the json module, and compared with what is there now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from px.warm import record
from px.warm.record import Built, BuiltHost, BuiltSandbox

if TYPE_CHECKING:
    from pathlib import Path

RECORD = {
    "version": record.VERSION,
    "root": '/home/ä "q" \\ \n \u2028 \U0001f40d',
    "numbers": [0, -1, 1731661234567890123, 1.5, -2e-3],
    "nothing": [None, True, False, {}, [], ""],
}
HOST = BuiltHost({"uv.lock": "0"}, {"groups": ["dev"]}, "0" * 64, "/envs/0", {"A": "b"}, ("profile/0",))
SANDBOX = BuiltSandbox(
    inputs={"uv.lock": "0", record.SANDBOX_TABLE: "1"},
    selection={},
    profile_oid="0" * 64,
    directory="/images/0",
    variables={},
    objects=("layer/0", "profile/0"),
    root="/project",
    sbx_id="1" * 64,
    base="debian-12",
    capabilities=("curl", "postgres"),
    layers=("/layers/0",),
    tables={"bases/a.json": [1, 2, 3, 4, "0"], "b.toml": []},
)


@pytest.mark.parametrize("options", [{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}])
def test_a_record_is_read_as_json_would(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(RECORD, **options), encoding="utf-8")  # type: ignore[arg-type]
    assert record.read(str(path)) == RECORD


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"version": 99}', "[]", "3", '{"version": 1', "\x00", '"\n"'])
def test_what_is_no_record_of_this_version_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    assert record.read(str(path)) is None


def test_bytes_that_are_no_text_are_none(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b'{"version": "\xff"}')
    assert record.read(str(path)) is None


def test_what_another_px_made_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "DATA", str(tmp_path))
    table = tmp_path / "table.toml"
    table.write_text("a = 1")
    built = SANDBOX.replace(tables={"table.toml": record.look_at_table("table.toml")})
    assert record.made_alike(built, 0)
    table.write_text("a = 1")  # another file, the same content
    assert record.made_alike(built, 0)
    assert not record.made_alike(built.replace(made_by="0.0.1"), 0)
    table.write_text("a = 2")
    assert not record.made_alike(built, 0)
    assert record.made_alike(HOST, 0), "an env of this machine is made from no table"
    assert not record.made_alike(HOST.replace(made_by="0.0.1"), 0)


@pytest.mark.parametrize(("target", "built"), [(record.HOST, HOST), (record.SANDBOX, SANDBOX)])
def test_what_was_built_is_read_back_as_it_was(target: str, built: Built) -> None:
    assert record.TARGETS[target].from_json(json.loads(json.dumps(built.as_json()))) == built


@pytest.mark.parametrize("absent", ["", "px-env.json", "bin/python"])
def test_an_env_is_whole_with_its_marker_and_its_interpreter(tmp_path: Path, absent: str) -> None:
    (tmp_path / "bin").mkdir()
    for name in {"px-env.json", "bin/python"} - {absent}:
        (tmp_path / name).touch()
    assert HOST.replace(directory=str(tmp_path)).whole is not bool(absent)


@pytest.mark.parametrize("absent", ["", "manifest.json", "layer-1"])
def test_a_sandbox_is_whole_with_its_manifest_and_its_layers(tmp_path: Path, absent: str) -> None:
    for name in {"manifest.json", "layer-0", "layer-1"} - {absent}:
        (tmp_path / name).mkdir()
    layers = tuple(str(tmp_path / f"layer-{number}") for number in range(2))
    assert SANDBOX.replace(directory=str(tmp_path), layers=layers).whole is not bool(absent)


def test_a_sandbox_that_something_touched_is_looked_at_again(tmp_path: Path) -> None:
    for name in ("layer-0", "layer-1", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    layers = tuple(str(tmp_path / f"layer-{number}") for number in range(2))
    built = SANDBOX.replace(directory=str(tmp_path), layers=layers)
    assert not built.untouched, "a record without marks says nothing"
    built = built.marked()
    untouched = built.untouched
    assert untouched
    (tmp_path / "layer-1").rename(tmp_path / "gone")
    assert not built.untouched
    (tmp_path / "other").rename(tmp_path / "layer-1")
    assert built.whole
    assert not built.untouched
    built = built.marked()
    (tmp_path / "manifest.json").write_text('{"sbx_id": "another"}')
    assert not built.untouched


def test_no_two_projects_have_a_record_of_the_same_name() -> None:
    roots = ["/a/b", "/a%2Fb", "/a%252Fb", "/a/b%", "/" + "x" * 500, "/" + "x" * 501, "/" + "ä" * 120]
    names = [record.record_name(root) for root in roots]
    assert names[0] == "%2Fa%2Fb.json"
    assert len(set(names)) == len(roots)
    assert all("/" not in name and len(name.encode()) <= 255 for name in names)


@pytest.mark.parametrize("pattern", ["*.txt", "../extra/*.txt", "{root}/extra/*.txt"])
def test_a_file_that_newly_matches_a_pattern_is_seen(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/a.txt").touch()
    globs = [["extra", pattern.format(root=tmp_path)]]
    raw = {"root": str(tmp_path), "globs": globs, "inputs": {"extra/a.txt": []}}
    assert not record._files_appeared(raw)
    (tmp_path / "extra/b.txt").touch()
    assert record._files_appeared(raw)
