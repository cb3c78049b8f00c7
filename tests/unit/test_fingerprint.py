"""A project's record on the warm path: read without the json module, and compared with what is there now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from px import __version__
from px.project import fingerprint, warm

if TYPE_CHECKING:
    from pathlib import Path

RECORD = {
    "version": fingerprint.VERSION,
    "root": '/home/ä "q" \\ \n \u2028 \U0001f40d',
    "numbers": [0, -1, 1731661234567890123, 1.5, -2e-3],
    "nothing": [None, True, False, {}, [], ""],
}


@pytest.mark.parametrize("options", [{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}])
def test_a_record_is_read_as_json_would(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(RECORD, **options), encoding="utf-8")  # type: ignore[arg-type]
    assert fingerprint.read(str(path)) == RECORD


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"version": 99}', "[]", "3", '{"version": 1', "\x00", '"\n"'])
def test_what_is_no_record_of_this_version_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    assert fingerprint.read(str(path)) is None


def test_bytes_that_are_no_text_are_none(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b'{"version": "\xff"}')
    assert fingerprint.read(str(path)) is None


def test_what_another_px_made_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_TABLES", str(tmp_path))
    table = tmp_path / "table.toml"
    table.write_text("a = 1")
    built = {"made_by": __version__, "tables": {"table.toml": fingerprint.look_at_table("table.toml")}}
    assert fingerprint.made_alike(built, 0)
    table.write_text("a = 1")  # another file, the same content
    assert fingerprint.made_alike(built, 0)
    assert not fingerprint.made_alike(built | {"made_by": "0.0.1"}, 0)
    table.write_text("a = 2")
    assert not fingerprint.made_alike(built, 0)


@pytest.mark.parametrize("pattern", ["*.txt", "../extra/*.txt", "{root}/extra/*.txt"])
def test_a_file_that_newly_matches_a_pattern_is_seen(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/a.txt").touch()
    globs = [["extra", pattern.format(root=tmp_path)]]
    raw = {"root": str(tmp_path), "globs": globs, "inputs": {"extra/a.txt": []}}
    assert not warm._files_appeared(raw)
    (tmp_path / "extra/b.txt").touch()
    assert warm._files_appeared(raw)
