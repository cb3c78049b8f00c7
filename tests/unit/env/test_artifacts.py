"""What is picked of a lock for a selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from px.env.artifacts import pick
from px.env.runtime import Runtime
from px.errors import PxError
from px.home import Home
from px.project.choices import choices
from px.project.context import Context
from px.project.discovery import discover
from px.project.selection import Selection
from px.store.objects import Store


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
    marked = {"dependency-groups": ["dev", "docs", "lint"]}
    assert choices(discover(tmp_path), marked, selection) == ([], groups)


EXTRAS = '[project]\nname = "a"\ndependencies = ["six"]\n[project.optional-dependencies]\nred = ["rouge"]\n'
GROUPS = '[dependency-groups]\ndev = ["pytest", "six"]\nlint = ["linter"]\n'


@pytest.mark.parametrize(
    ("locked", "selection", "said"),
    [
        (["six"], Selection(extras=("nosuch",)), "no extra 'nosuch' (it has: red)"),
        (["six"], Selection(groups=("nosuch",)), "no group 'nosuch' (it has: dev, lint)"),
        (["six"], Selection(extras=("red",)), "made without the extra 'red'"),
        (["six"], Selection(all_extras=True), "made without the extra 'red'"),
        (["six", "rouge"], Selection(extras=("red",)), ""),
        (["six", "pytest"], Selection(groups=("lint",)), "made without the group 'lint'"),
        (["six", "pytest"], Selection(default_groups=False), "the group 'dev' is in it and cannot be left out"),
        (["six", "pytest"], Selection(no_groups=("dev",)), "the group 'dev' is in it and cannot be left out"),
        (["six"], Selection(default_groups=False), ""),
        (["six", "linter"], Selection(), ""),
    ],
)
def test_a_pylock_without_markers_serves_what_is_in_it(
    tmp_path: Path, locked: list[str], selection: Selection, said: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(EXTRAS + GROUPS)
    (tmp_path / "pylock.toml").write_text("")
    document = {"packages": [{"name": name} for name in locked]}
    if said:
        with pytest.raises(PxError) as caught:
            choices(discover(tmp_path), document, selection)
        assert said in caught.value.what
    else:
        extras, groups = choices(discover(tmp_path), document, selection)
        assert (extras, groups or []) == ([], [])


WHEEL = {"name": "a-1-py3-none-any.whl", "url": "https://example.org/a-1-py3-none-any.whl", "hashes": {"sha256": "0"}}


@pytest.mark.parametrize("marker", ["os_name ~= '1.0'", "'a' in 'b'", "os_name ==", 5])
@pytest.mark.parametrize("sources", [{}, {"wheels": [WHEEL]}], ids=["without a file", "with a wheel"])
def test_a_marker_that_says_nothing_is_an_error_of_the_lock(
    tmp_path: Path, marker: object, sources: dict[str, object]
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\n')
    (tmp_path / "pylock.toml").write_text("")
    context = Context(Store(Home(tmp_path / "home")), tmp_path)
    package = {"name": "a", "version": "1", "marker": marker, **sources}
    document = {"lock-version": "1.0", "created-by": "px", "packages": [package]}
    with pytest.raises(PxError) as caught:
        pick(context, document, Runtime("3.11.2", "cp311", "Linux", "x86_64", "glibc-2.36"))
    assert caught.value.code == "PX101"
