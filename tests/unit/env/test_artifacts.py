"""What is picked of a lock for a selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.env.artifacts import _pylock_choices
from px.project.discovery import discover
from px.project.selection import Selection


@pytest.mark.parametrize(
    ("settings", "selection", "groups"),
    [
        ("", Selection(), None),
        ("", Selection(no_groups=("dev",)), []),
        ("", Selection(groups=("lint",)), ["dev", "lint"]),
        ('default-groups = "all"', Selection(no_groups=("docs",)), ["dev", "lint"]),
    ],
)
def test_the_groups_of_a_pylock(tmp_path: Path, settings: str, selection: Selection, groups: list[str] | None) -> None:
    tables = "[dependency-groups]\ndev = []\ndocs = []\nlint = []\n"
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "a"\n{tables}[tool.uv]\n{settings}\n')
    (tmp_path / "pylock.toml").write_text("")
    assert _pylock_choices(discover(tmp_path), selection) == ([], groups)
