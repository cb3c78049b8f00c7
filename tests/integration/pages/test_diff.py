"""``px sandbox diff`` with everything that it takes: commits, images, ids and the project itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.store.gc import collect
from px.store.locks import acquire
from px.store.objects import Store
from tests.integration.pages.conftest import SHOP, git
from tests.support.index import Index
from tests.support.needs import need
from tests.support.px import PX, UV, run_px

pytestmark = pytest.mark.slow


@pytest.fixture
def small(tmp_path: Path, index: Index, warm: Home) -> Path:
    """Two commits of a project with small packages of the tests' own index."""
    need("git", "bubblewrap")
    root = tmp_path / "small"
    root.mkdir()
    git(root, "init", "-q")
    (root / ".gitignore").write_text(".px\n*.tar\n*.html\n")
    for dependencies in ('"hello"', '"needs-new", "ns-one"'):
        (root / "pyproject.toml").write_text(SHOP.format(dependencies=dependencies))
        subprocess.run([UV, "lock", "--quiet"], cwd=root, check=True, capture_output=True, timeout=120)
        git(root, "add", "-A")
        git(root, "commit", "-qm", dependencies)
    return root


def diff(root: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = run_px("sandbox", "diff", *args, "--json", cwd=root, check=False)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["details"]
    return found


def changed(found: dict[str, Any]) -> dict[str, str]:
    return {change["name"]: change["what"] for change in found["changes"]}


EXPECTED = {"hello": "removed", "leaf": "updated", "needs-new": "added", "ns-one": "added"}


def test_commits_images_and_ids_say_the_same(small: Path) -> None:
    found = diff(small, "HEAD~1", "HEAD")
    assert changed(found) == EXPECTED
    assert all(change["weight"] for change in found["changes"] if change["what"] == "added")

    for name, commit in (("old", "HEAD~1"), ("new", "main" if "main" in git(small, "branch") else "master")):
        git(small, "checkout", "-q", commit)
        run_px("sync", "--sandbox", cwd=small)
        run_px("pack", "image", "--out", f"{name}.tar", cwd=small)
    images = diff(small, "old.tar", "new.tar")
    assert changed(images) == EXPECTED
    ids = [found[side]["ids"]["sbx_id"] for side in ("before", "after")]
    assert [images[side]["ids"]["sbx_id"] for side in ("before", "after")] == ids

    stored = diff(small, ids[0][:12], ids[1])
    assert changed(stored) == EXPECTED
    assert [c["weight"] for c in stored["changes"]] == [c["weight"] for c in found["changes"]]

    # An image and the commit that it was made from have the same packages; only the project itself is more.
    mixed = diff(small, "image:new.tar", "commit:HEAD")
    assert mixed["changes"] == []
    assert diff(small, "HEAD", ".", "--exit-code")["same"] is True
    assert diff(small, "HEAD~1", "--exit-code", code=1)["same"] is False


def test_a_difference_as_a_page_and_as_text_at_once(small: Path) -> None:
    done = run_px("sandbox", "diff", "HEAD~1", "HEAD", "--html", f"../{small.name}/out.html", "--json", cwd=small)
    assert json.loads(done.stdout)["details"]["html"] == str(small / "out.html")
    assert b"needs-new" in (small / "out.html").read_bytes()
    nowhere = run_px("sandbox", "diff", "HEAD~1", "HEAD", "--html", "no/such/place/out.html", cwd=small, check=False)
    assert nowhere.stderr.splitlines()[-1:] != []
    assert git(small, "status", "--porcelain") == ""


def test_garbage_is_not_collected_while_a_sandbox_is_read(small: Path, warm: Home, tmp_path: Path) -> None:
    """A difference waits for a collection that runs, and a collection waits for a difference."""
    fd = acquire(warm.locks / "gc")
    assert fd is not None
    command = [str(PX), "sandbox", "diff", "HEAD~1", "HEAD"]
    with subprocess.Popen(command, cwd=small, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("Waiting for px store gc")
        os.close(fd)
        assert "needs-new" in waiting.communicate(timeout=300)[0]
    assert waiting.returncode == 0
    assert isinstance(collect(Store(warm), grace=3600, dry_run=True), list)


def test_no_browser_is_no_error(small: Path) -> None:
    done = run_px("sandbox", "explain", "--open", cwd=small, PATH=f"{Path(PX).parent}:/nowhere")
    path = next(line for line in done.stderr.splitlines() if line.startswith("Wrote ")).removeprefix("Wrote ")
    assert "px found no program that opens pages" in done.stderr
    assert Path(path).parent.stat().st_mode & 0o077 == 0, "nobody else's business"
    shutil.rmtree(Path(path).parent)
