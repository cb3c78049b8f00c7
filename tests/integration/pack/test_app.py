"""What of the working tree gets into the image: committed files, and nothing by accident."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.pack.projects import Project, app_files, image_in
from tests.support.px import PX

COMMITTED = {".gitignore", "pyproject.toml", "uv.lock", "src", "src/demo_app", "src/demo_app/__init__.py"}


def test_a_clean_tree_gives_its_files(project: Project) -> None:
    found = project.packed_files()
    assert set(found) == COMMITTED
    assert {(f.kind, f.mode) for f in found.values()} == {("file", 0o644), ("directory", 0o755)}
    assert {f.owner for f in found.values()} == {(1000, 1000)}


@pytest.mark.parametrize("change", ["modified", "staged", "untracked", "deleted"])
def test_a_dirty_tree_is_refused_or_packed_with_a_warning(project: Project, change: str) -> None:
    clean = project.pack().digest
    path = "src/demo_app/__init__.py" if change in ("modified", "deleted") else "src/demo_app/other.py"
    if change == "deleted":
        (project.root / path).unlink()
    else:
        project.write(path, "print('changed')\n")
    if change == "staged":
        project.git("add", path)
    said = project.refused()
    assert said.startswith("PX920")
    assert path in said
    assert "--allow-dirty" in said
    done = project.px("pack", "image", "--allow-dirty", "--out", project.root.with_name("x.tar"))
    assert "warning: packing 1 uncommitted change" in done.stderr
    assert (path in app_files(image_in(project.root.with_name("x.tar")))) is (change != "deleted")
    assert clean not in done.stdout


def test_ignored_and_secret_files_stay_out(project: Project) -> None:
    project.write(".gitignore", "__pycache__/\n*.egg-info/\n*.log\nlocal/\n")
    project.write(".env", "PASSWORD=secret\n")  # committed by mistake, and still not packed
    project.write("deploy/.env.production", "PASSWORD=secret\n")
    project.write("deploy/values.txt", "1\n")
    project.commit()
    project.write("a.log", "noise\n")
    project.write("local/settings.py", "X = 1\n")
    project.write("src/demo_app/__pycache__/x.cpython-311.pyc", "")
    project.write(".venv/pyvenv.cfg", "")
    assert set(project.packed_files()) == COMMITTED | {"deploy", "deploy/values.txt"}


def test_the_users_own_excludes(project: Project) -> None:
    project.write("docs/guide.md", "long\n")
    project.write("tests/test_x.py", "def test_x(): pass\n")
    project.write("generated/schema.json", "{}\n")
    project.write(".gitignore", "__pycache__/\n*.egg-info/\n/generated/\n")
    project.write(".pxignore", "/docs/\n!/generated/schema.json\n")
    project.replace("pyproject.toml", "[tool.px.env]", '[tool.px.sandbox]\nexclude = ["tests/"]\n\n[tool.px.env]')
    project.commit()
    project.sync()
    assert set(project.packed_files()) == COMMITTED | {".pxignore", "generated", "generated/schema.json"}
    project.write("docs/more.md", "not committed, not packed: not dirty\n")
    project.pack()


def test_submodules(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other")
    other.write("data.txt", "from the submodule\n")
    other.write("build/junk", "")
    other.write(".gitignore", "build/\n")
    other.git("init", "-q", "-b", "main")
    other.commit()
    project.git("submodule", "--quiet", "add", str(other.root), "vendor/other")
    project.commit()
    found = project.packed_files()
    assert found["vendor/other/data.txt"].size == len("from the submodule\n")
    assert "vendor/other/build/junk" not in found
    project.write("vendor/other/data.txt", "edited\n")
    assert "vendor/other" in project.refused()
    project.git("submodule", "--quiet", "deinit", "-f", "vendor/other")
    said = project.refused()
    assert "PX921  vendor/other" in said
    assert "git submodule update --init" in said


def test_links(project: Project) -> None:
    (project.root / "inside").symlink_to("src/demo_app")
    project.commit()
    assert project.packed_files()["inside"].content == "src/demo_app"
    for target in ("../outside", "/etc/passwd"):
        (project.root / "out").symlink_to(target)
        project.commit()
        said = project.refused()
        assert "PX921  out cannot be packed: the link points out of the tree" in said
        assert ".pxignore" in said
        (project.root / "out").unlink()


def test_modes_do_not_depend_on_the_umask(project: Project) -> None:
    project.write("tool.sh", "#!/bin/sh\n", 0o755)
    project.commit()
    first = project.pack().digest
    for path in (project.root / "tool.sh", project.root / "uv.lock"):
        path.chmod(path.stat().st_mode & 0o700)
    (project.root / "src").chmod(0o700)
    assert project.pack().digest == first


def test_without_git_it_is_packed_with_a_warning(project: Project, tmp_path: Path) -> None:
    subprocess.run(["rm", "-rf", project.root / ".git"], check=True)
    done = project.px("pack", "image", "--out", tmp_path / "x.tar")
    assert "warning: this is not a git repository" in done.stderr
    image = image_in(tmp_path / "x.tar")
    assert set(app_files(image)) == COMMITTED
    assert "org.opencontainers.image.revision" not in image.annotations
    assert image.config["created"] == "1970-01-01T00:00:00Z"


def test_what_px_writes_into_the_tree_is_not_packed(project: Project) -> None:
    first = project.pack().digest
    for _ in range(2):
        assert project.pack("--out", "dist/app.tar", "--sbom", "bill.json").digest == first
        (project.root / "bill.json").rename(project.root.with_name("bill.json"))
    assert project.verify("dist/app.tar").returncode == 0
    said = project.refused("--out", "elsewhere.tar")
    assert "untracked: dist/app.tar" in said
    (project.root / "dist/app.tar").unlink()
    for _ in range(2):
        assert project.pack("--out", "layout/").digest == first
    assert project.verify("layout").returncode == 0


def test_a_file_that_changes_while_it_is_packed(project: Project) -> None:
    """A writer that never rests: px either refuses, or packed one consistent state before the writer began."""
    victim = project.write("data.bin", "x" * 30_000_000)
    project.commit()
    done = subprocess.Popen(
        [PX, "pack", "image", "--allow-dirty", "--out", project.root.with_name("x.tar")],
        cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with victim.open("r+b", buffering=0) as f:
        n = 0
        while done.poll() is None:
            f.seek(n % 30_000_000)
            f.write(os.urandom(16))
            n += 999_983
            time.sleep(0.0005)
    said = done.communicate()[1]
    assert done.returncode == 125, said
    assert "PX921  data.bin cannot be packed" in said
    assert not project.root.with_name("x.tar").exists()
    project.git("checkout", "-q", "data.bin")
    project.pack()


def test_a_file_saved_between_the_check_and_the_packing(project: Project, tmp_path: Path) -> None:
    """The commit would be named in an image that is not made from it: a git that is slow shows it."""
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    edited = project.root / "src/demo_app/__init__.py"
    saving = f'case "$*" in *status*) echo "# saved" >> {edited};; esac'
    slow.write_text(f'#!/bin/sh\n/usr/bin/git "$@"\nstatus=$?\n{saving}\nexit $status\n')
    slow.chmod(0o755)
    said = project.refused(PATH=f"{slow.parent}:{os.environ['PATH']}")
    assert "PX920" in said
    assert "modified: src/demo_app/__init__.py" in said


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_files(project: Project, count: int) -> None:
    for n in range(count):
        folder = project.root / "data" / str(n // 500)
        if n % 500 == 0:
            folder.mkdir(parents=True)
        (folder / f"{n}.txt").write_text(f"{n}\n")
    project.commit()
    first = project.pack("--out", project.root.with_name("x.tar"))
    files = app_files(image_in(project.root.with_name("x.tar")))
    assert sum(path.endswith(".txt") for path in files) == count
    assert project.pack().digest == first.digest
    assert project.verify(project.root.with_name("x.tar")).returncode == 0
