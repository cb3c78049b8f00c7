"""Repositories as people have them, seen through the shadow in which px's git runs."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from px.errors import PxError
from px.project.git.history import clone, commit_of
from px.project.git.shadow import locate
from px.project.git.tree import changes, settings, tracked
from tests.unit.project.test_worktree import _git_settings, git, repository  # noqa: F401 - an automatic fixture


def changed(root: Path) -> list[str]:
    return [str(change) for change in changes(root)]


def touch(*paths: Path) -> None:
    """Make git compare by content."""
    for path in paths:
        os.utime(path, (1, 1))


def test_a_linked_working_tree(tmp_path: Path) -> None:
    root = repository(tmp_path / "main", {"a": "1\n", "sub/b": "2\n"})
    other = tmp_path / "other"
    git(root, "worktree", "add", "-q", "-b", "feature", str(other))
    (other / "c").write_text("3\n")
    git(other, "add", "c")
    git(other, "commit", "-qm", "second")
    (other / "a").write_text("changed\n")
    assert changed(other) == ["modified: a"]
    assert changed(other / "sub") == []
    assert tracked(other).files == {"a", "sub/b", "c"}
    revisions = [commit.revision for place in (root, other) if (commit := commit_of(place)) is not None]
    assert revisions == [git(place, "rev-parse", "HEAD").strip() for place in (root, other)]
    assert revisions[0] != revisions[1]


def test_a_repository_directory_elsewhere(tmp_path: Path) -> None:
    root = repository(tmp_path / "main", {"a": "1\n"})
    git(root, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"))
    assert (root / ".git").is_file()
    (root / "a").write_text("2\n")
    assert changed(root) == ["modified: a"]


def test_a_project_below_a_link(tmp_path: Path) -> None:
    repository(tmp_path / "main", {"a": "1\n"})
    (tmp_path / "link").symlink_to("main")
    assert changed(tmp_path / "link") == []


def test_a_repository_with_sha256(tmp_path: Path) -> None:
    root = tmp_path / "main"
    root.mkdir()
    (root / "a").write_text("1\n")
    git(root, "init", "-q", "--object-format=sha256")
    git(root, "add", "a")
    git(root, "commit", "-qm", "first")
    touch(root / "a")
    assert changed(root) == []
    commit = commit_of(root)
    assert commit is not None
    assert len(commit.revision) == 64


def test_a_split_index_and_packed_refs(tmp_path: Path) -> None:
    root = repository(tmp_path / "main", {"a": "1\n"})
    git(root, "update-index", "--split-index")
    git(root, "tag", "v1")
    git(root, "pack-refs", "--all")
    git(root, "gc", "-q")
    (root / "a").write_text("2\n")
    assert changed(root) == ["modified: a"]
    clone(root, tmp_path / "copy")
    assert git(tmp_path / "copy", "describe", "--tags").strip() == "v1"


def test_changes_in_submodules_of_submodules(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner", {"a": "1\n"})
    middle = repository(tmp_path / "middle", {"b": "1\n"})
    git(middle, "submodule", "add", "-q", str(inner), "inner")
    git(middle, "commit", "-qm", "second")
    root = repository(tmp_path / "outer", {"c": "1\n"})
    git(root, "submodule", "add", "-q", str(middle), "middle")
    git(root, "submodule", "update", "-q", "--init", "--recursive")
    git(root, "commit", "-qm", "second")
    assert changed(root) == []
    (root / "middle/inner/a").write_text("2\n")
    assert changed(root) == ["submodule changed: middle"]
    git(root / "middle/inner", "checkout", "-q", "a")
    (root / "middle/inner/new").write_text("")
    assert changed(root) == ["submodule changed: middle"]
    (root / "middle/inner/new").unlink()
    git(root / "middle", "commit", "-q", "--allow-empty", "-m", "third")
    assert changed(root) == ["submodule changed: middle"]


def lfs(root: Path, content: bytes) -> Path:
    """A file of Git LFS as it is after ``git lfs pull``: the pointer in the commit, the content in the tree."""
    pointer = f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
    root = repository(
        root,
        {
            ".gitattributes": "*.bin filter=lfs -text\n",
            "big.bin": f"version https://git-lfs.github.com/spec/v1\n{pointer}",
        },
    )
    (root / "big.bin").write_bytes(content)
    return root


def test_files_of_git_lfs_compare_by_their_content(tmp_path: Path) -> None:
    root = lfs(tmp_path / "main", b"many bytes\0" * 1000)
    assert changed(root) == []
    (root / "big.bin").write_bytes(b"other bytes\0" * 1000)
    assert changed(root) == ["modified (as far as px can see: it does not run the filter lfs): big.bin"]
    (root / "big.bin").unlink()
    (root / "big.bin").symlink_to("/dev/zero")
    assert changed(root) == ["modified: big.bin"]


def test_the_pointer_itself_is_as_committed(tmp_path: Path) -> None:
    root = lfs(tmp_path / "main", b"many bytes\0" * 1000)
    git(root, "checkout", "-q", "big.bin")
    touch(root / "big.bin")
    assert changed(root) == []


def test_other_filters_are_named(tmp_path: Path) -> None:
    root = repository(
        tmp_path / "main", {".gitattributes": "*.ipynb filter=nbstripout\n", "a.ipynb": "1\n", "b": "1\n"}
    )
    touch(root / "a.ipynb")
    assert changed(root) == []
    (root / "a.ipynb").write_text("2\n")
    (root / "b").write_text("2\n")
    said = "modified (as far as px can see: it does not run the filter nbstripout): a.ipynb"
    assert changed(root) == [said, "modified: b"]


def test_line_ends_as_the_user_wants_them(tmp_path: Path) -> None:
    root = repository(tmp_path / "main", {"a": "1\n2\n"})
    home = Path(os.environ["HOME"])
    home.mkdir()
    (home / ".gitconfig").write_text("[include]\npath = more\n")
    (home / "more").write_text("[core]\nautocrlf = TRUE\n")
    assert settings(root)["core.autocrlf"] == "true"
    (root / "a").unlink()
    git(root, "checkout", "-q", "a")
    assert (root / "a").read_bytes() == b"1\r\n2\r\n"
    touch(root / "a")
    assert changed(root) == []
    git(root, "config", "core.autocrlf", "false")
    assert changed(root) == ["modified: a"]


def test_settings_that_are_no_settings(tmp_path: Path) -> None:
    root = repository(tmp_path / "main", {"a": "1\n"})
    with (root / ".git/config").open("a") as f:
        f.write('[core]\nautocrlf = "x\\n[filter]"\neol = sideways\nexcludesFile = "with \\"quotes\\" and \\\\ \\n"\n')
    assert "core.eol" not in settings(root)
    assert "core.autocrlf" not in settings(root)
    assert settings(root)["core.excludesfile"] == 'with "quotes" and \\ \n'
    assert changed(root) == []


def test_a_repository_of_somebody_else_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git asks for safe.directory because it would run what the repository names; px's does not."""
    root = repository(tmp_path / "main", {"a": "1\n"})
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert changed(root) == []


def test_variables_of_another_repository_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "main", {"a": "1\n"})
    other = repository(tmp_path / "other", {"b": "1\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert tracked(root).files == {"a"}


@pytest.mark.parametrize("name", ["config", "HEAD"])
def test_a_part_that_is_a_link_or_a_pipe(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "main", {"a": "1\n"})
    file = root / ".git" / name
    shutil.move(file, tmp_path / name)
    file.symlink_to(tmp_path / name)
    with pytest.raises(PxError, match="it is a link"):
        changes(root)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(PxError, match="not a regular file"):
        changes(root)


def test_a_repository_without_a_configuration(tmp_path: Path) -> None:
    root = repository(tmp_path / "main", {"a": "1\n"})
    (root / ".git/config").unlink()
    assert changed(root) == []
    assert locate(root).local() == {}
