"""Which directories of this machine a local task sees."""

from __future__ import annotations

from pathlib import Path

from metaflow_extensions.sandbox.plugins.local.mounts import Mounts
from px.home import Home


def test_a_home_of_px_in_a_shared_directory_is_covered(tmp_path: Path) -> None:
    """The socket of the fork server is in there, and the store that other sandboxes are made from."""
    mounts = Mounts()
    mounts.share(tmp_path)
    mounts.hide(Home(tmp_path / "home"))
    source, target, read_only = mounts.rows[-1]
    assert (target, read_only) == (str(tmp_path / "home"), True)
    assert list(Path(source).iterdir()) == []


def test_another_home_of_px_is_not_there_anyway(tmp_path: Path) -> None:
    mounts = Mounts()
    mounts.share(tmp_path / "work")
    mounts.hide(Home(tmp_path / "home"))
    assert [target for _, target, _ in mounts.rows] == [str(tmp_path / "work")]
