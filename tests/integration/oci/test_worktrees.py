"""Working trees that unit tests cannot make: files of other users, very many files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from px.home import Home
from px.oci.blobs import Blobs
from px.oci.image import ReadLayer, layer_files
from px.project.worktree.files import dirty
from px.project.worktree.tree import scan
from tests.conftest import REPO
from tests.support.needs import only_for
from tests.support.worktree import app_layer

NOBODY = 65534


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    only_for("root", "as an ordinary user this is a unit test")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "locked").write_text("")
    (tmp_path / "sub" / "locked").chmod(0)
    (tmp_path / "shut").mkdir()
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom px.errors import PxError, catalogue\n"
        "from px.project.worktree.tree import scan\n"
        "catalogue()  # nobody may not be allowed to read px itself\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try:\n    scan(Path(sys.argv[1]))\nexcept PxError as e:\n    print(e.code, e.what)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.stdout == "PX921 sub/locked cannot be packed: it cannot be read\n", done.stderr
    (tmp_path / "sub" / "locked").unlink()
    (tmp_path / "shut").chmod(0o700)
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.stdout == "PX921 shut cannot be packed: the directory cannot be read\n", done.stderr


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_very_many_files(count: int, home: Home, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    for n in range(count):
        if n % 250 == 0:
            folder = root / f"{n // 5000}" / f"{n // 250}"
            folder.mkdir(parents=True)
        (folder / f"{n}.py").write_text(f"x = {n}\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0"]
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *args], cwd=root, check=True)
    assert dirty(root) == []
    tree, blobs = scan(root), Blobs(home)
    made = app_layer(blobs, tree)
    layer = ReadLayer(made.diff_id, made.digest, made.size, "", lambda: blobs.path(made.digest).open("rb"))
    files = layer_files(layer)
    assert sum(file.kind == "file" for file in files.values()) == count
