"""Which directories of this machine a local task sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.local.entrypoint import flow_file
from metaflow_extensions.sandbox.plugins.local.mounts import Mounts
from px.home import Home


def targets(mounts: Mounts) -> list[str]:
    return [row[1] for row in mounts.rows]


def test_a_home_of_px_in_a_shared_directory_is_covered(tmp_path: Path) -> None:
    """The socket of the fork server is in there, and the store that other sandboxes are made from."""
    flow, home = tmp_path / "work/flow.py", tmp_path / "work/ci/home"
    home.mkdir(parents=True)
    mounts = Mounts(Home(home))
    mounts.share_working_tree(flow, str(tmp_path / "work"))
    assert mounts.hidden == [str(home)]
    assert str(home.parent) in targets(mounts), "it could be renamed, and another one put there"


def test_a_home_of_px_in_what_is_only_read_is_covered_as_well(tmp_path: Path) -> None:
    home = tmp_path / "package/home"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to("package")
    mounts = Mounts(Home(home))
    mounts.show(tmp_path / "link")
    assert mounts.hidden == [str(tmp_path / "link/home")]


def test_another_home_of_px_is_not_there_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    mounts = Mounts(Home(tmp_path / "home"))
    mounts.share_working_tree(tmp_path / "work/flow.py", "")
    assert mounts.hidden == []
    assert targets(mounts) == [str(tmp_path / "work"), *(str(tmp_path / "work" / name) for name in (".git", ".px"))]


def test_a_flow_in_the_home_of_px_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home/work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home/work")
    with pytest.raises(Unusable, match="px's own directory"):
        Mounts(Home(tmp_path / "home")).share_working_tree(tmp_path / "home/work/flow.py", "")


def test_the_project_is_where_its_env_looks_for_it_as_well(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "ci/home").mkdir(parents=True)
    mounts = Mounts(Home(root / "ci/home"))
    mounts.share_project("")
    assert mounts.rows == []
    mounts.share_project(str(root))
    assert [str(root), "/app", False] == mounts.rows[0][:3]
    assert mounts.hidden == ["/app/ci/home"]
    assert ["/app/.git", True] in [row[1:3] for row in mounts.rows]


def test_what_lies_at_the_place_of_the_project_stays(tmp_path: Path) -> None:
    mounts = Mounts(Home(tmp_path / "home"))
    mounts.share(Path("/app/flows"))
    mounts.share_project(str(tmp_path / "project"))
    assert targets(mounts) == ["/app/flows"]


def test_a_flow_that_was_named_from_another_directory(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "real/flow.py").write_text("")
    (tmp_path / "link").symlink_to("real/deep")
    (tmp_path / "flow.py").symlink_to("real/flow.py")
    assert flow_file(f"{tmp_path}/link/../flow.py") == tmp_path / "real/flow.py"
    assert flow_file(f"{tmp_path}/flow.py") == tmp_path / "flow.py"
