"""What of a working tree gets into the app layer, judged by git itself where git has an opinion."""

from __future__ import annotations

import os
import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from px.errors import PxError
from px.oci.blobs import Blobs
from px.project.git.history import commit_of
from px.project.worktree.files import chosen, dirty
from px.project.worktree.tree import scan
from tests.support.needs import need, only_for
from tests.support.worktree import app_layer

if TYPE_CHECKING:
    from pathlib import Path

    from px.home import Home


@pytest.fixture(autouse=True)
def _git_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Tester")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "tester@example.org")
        monkeypatch.setenv(f"GIT_{who}_DATE", "1700000000 +0100")


def git(where: Path, *args: str) -> str:
    need("git")
    config = ["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"]
    return subprocess.run(["git", *config, *args], cwd=where, check=True, capture_output=True, text=True).stdout


def write(root: Path, files: dict[str, str]) -> Path:
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return root


def repository(root: Path, files: dict[str, str]) -> Path:
    write(root, files)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def packed(root: Path, exclude: tuple[str, ...] = ()) -> list[str]:
    return [str(e[1]) for e in scan(root, exclude=exclude).entries if e[0] != "d"]


def test_without_git_the_gitignore_files_decide(tmp_path: Path) -> None:
    root = write(
        tmp_path / "p",
        {
            ".gitignore": "*.log\nbuild/\n!keep.log\n",
            "main.py": "",
            "a.log": "",
            "keep.log": "",
            "build/x": "",
            "sub/.gitignore": "secret\n!a.log\n",
            "sub/secret": "",
            "sub/a.log": "",
            "sub/b.log": "",
            "secret": "",
        },
    )
    assert packed(root) == [".gitignore", "keep.log", "main.py", "secret", "sub/.gitignore", "sub/a.log"]
    assert dirty(root) is None


def test_what_is_never_packed(tmp_path: Path) -> None:
    never = {
        ".env": "SECRET=1", ".env.production": "SECRET=1", "sub/.env": "SECRET=1", ".px/state": "",  ".venv/bin/x": "",
        ".hg/x": "", ".svn/x": "", "__pycache__/a.pyc": "", "b.pyc": "", ".pytest_cache/x": "", ".mypy_cache/x": "",
        ".ruff_cache/x": "", ".tox/x": "", "myenv/pyvenv.cfg": "", "myenv/bin/python": "",
        ".metaflow/AFlow/data/ab/artifact": "", "flows/.metaflow/x": "", ".metaflow_spin/x": "",
    }  # fmt: skip
    root = write(tmp_path / "p", {"main.py": "", ".envrc": "", **never})
    assert packed(root) == [".envrc", "main.py"]


def test_secrets_stay_out_even_if_committed(tmp_path: Path) -> None:
    root = repository(tmp_path / "p", {"main.py": "", ".env": "SECRET=1", ".env.local": "x"})
    assert packed(root) == ["main.py"]


def test_tracked_files_are_packed_although_a_pattern_names_them(tmp_path: Path) -> None:
    root = repository(tmp_path / "p", {"main.py": ""})
    write(root, {".gitignore": "data/\n*.bin\n", "data/model": "m", "data/cache": "c", "x.bin": "x"})
    git(root, "add", "-f", "data/model", ".gitignore")
    git(root, "commit", "-qm", "second")
    assert packed(root) == [".gitignore", "data/model", "main.py"]
    assert dirty(root) == []


def test_the_data_of_runs_is_no_change(tmp_path: Path) -> None:
    root = repository(tmp_path / "p", {"flow.py": ""})
    write(root, {".metaflow/AFlow/1/start/1/0.data.json": "", ".metaflow_spin/AFlow/latest_run": ""})
    assert dirty(root) == []


def test_pxs_home_in_the_tree_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some CI systems keep between two runs only what lies in the working tree."""
    root = repository(tmp_path / "p", {"a": ""})
    monkeypatch.setenv("PX_HOME", str(root / ".cache-of-px"))
    write(root, {".cache-of-px/store/object": ""})
    assert dirty(root) == []
    assert packed(root) == ["a"]
    write(root, {".cache-of-px-not": ""})
    assert [str(change) for change in dirty(root) or []] == ["untracked: .cache-of-px-not"]


def test_what_is_dirty(tmp_path: Path) -> None:
    root = repository(tmp_path / "p", {"a": "1", "b": "1", "c": "1", "d d": "1", ".gitignore": "ignored\n"})
    assert dirty(root) == []
    write(root, {"a": "2", "new file": "", "ignored": "", ".env": "never packed, so it does not count"})
    (root / "b").unlink()
    git(root, "mv", "d d", "e e")
    found = dirty(root)
    assert found is not None
    assert [str(change) for change in found] == ["modified: a", "deleted: b", "renamed: e e", "untracked: new file"]
    assert packed(root) == [".gitignore", "a", "c", "e e", "new file"]
    (root / ".pxignore").write_text("new*\n/a\nb\ne e\n")
    assert [str(change) for change in dirty(root) or []] == ["untracked: .pxignore"]


def test_a_project_inside_a_repository(tmp_path: Path) -> None:
    top = repository(tmp_path / "mono", {".gitignore": "*.log\n/app/out/\n", "app/main.py": "", "other/x": ""})
    write(top, {"app/a.log": "", "app/out/x": "", "other/dirty": ""})
    assert packed(top / "app") == ["main.py"]
    assert dirty(top / "app") == []
    write(top, {"app/new": ""})
    assert [str(change) for change in dirty(top / "app") or []] == ["untracked: new"]


def test_a_project_in_an_ignored_directory_is_not_part_of_the_repository(tmp_path: Path) -> None:
    top = repository(tmp_path / "outer", {".gitignore": "build/\n"})
    root = write(top / "build" / "project", {"main.py": ""})
    assert packed(root) == ["main.py"]
    assert dirty(root) is None


def test_info_exclude_and_the_users_own_ignore_file(tmp_path: Path) -> None:
    root = repository(tmp_path / "p", {"main.py": ""})
    (root / ".git" / "info" / "exclude").write_text("local/\n")
    write(tmp_path / "nobody", {".config/git/ignore": "*.swp\n"})
    write(root, {"local/x": "", "a.swp": ""})
    assert packed(root) == ["main.py"]
    assert dirty(root) == []


def test_what_git_status_does_not_look_at(tmp_path: Path) -> None:
    root = repository(
        tmp_path / "p", {"main.py": "", "settings.py": "", "local.py": "", "docs/a.md": "", "docs/b.md": ""}
    )
    git(root, "update-index", "--assume-unchanged", "settings.py")
    git(root, "update-index", "--skip-worktree", "local.py")
    write(root, {"settings.py": "changed", "local.py": "changed"})
    assert git(root, "status", "--short") == ""
    assert list(map(str, dirty(root) or [])) == [f"hidden from git status: {p}" for p in ("local.py", "settings.py")]
    git(root, "update-index", "--no-assume-unchanged", "settings.py")
    git(root, "update-index", "--no-skip-worktree", "local.py")
    git(root, "checkout", "-q", ".")
    git(root, "sparse-checkout", "set", "--no-cone", "/*", "!/docs/")
    with pytest.raises(PxError, match="it is tracked but not checked out") as caught:
        dirty(root)
    assert caught.value.code == "PX921"
    assert dirty(root, exclude=("docs/",)) == []
    git(root, "sparse-checkout", "disable")
    assert dirty(root) == []


@pytest.mark.parametrize("off", ["false", "No"])
def test_modes_where_the_file_system_has_none(off: str, tmp_path: Path) -> None:
    root = repository(tmp_path / "p", {"run.sh": "", "plain.py": ""})
    git(root, "update-index", "--chmod=+x", "run.sh")
    git(root, "commit", "-qm", "executable")
    git(root, "config", "core.fileMode", off)
    (root / "plain.py").chmod(0o755)
    write(root, {"new.sh": ""}).joinpath("new.sh").chmod(0o755)
    assert git(root, "status", "--short") == "?? new.sh\n"
    assert {e[1]: e[2] for e in scan(root).entries} == {"run.sh": 0o755, "plain.py": 0o644, "new.sh": 0o755}


def test_line_ends_that_git_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = repository(tmp_path / "p", {"main.py": "a\n"})
    before = scan(root).oid
    assert capsys.readouterr().err == ""
    git(root, "config", "core.autocrlf", "true")
    (root / "main.py").unlink()
    git(root, "checkout", "-q", ".")
    assert dirty(root) == []
    assert scan(root).oid != before
    assert "CRLF" in capsys.readouterr().err


def test_submodules_are_packed_when_checked_out_and_an_error_when_not(tmp_path: Path) -> None:
    library = repository(tmp_path / "library", {"lib.py": "", ".gitignore": "*.tmp\n", "main.log": "tracked here"})
    root = repository(tmp_path / "p", {"main.py": "", ".gitignore": "*.log\n"})
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    git(root, "commit", "-qm", "with a submodule")
    write(root, {"vendor/library/x.tmp": ""})
    inside = ["vendor/library/.gitignore", "vendor/library/lib.py", "vendor/library/main.log"]
    assert packed(root) == [".gitignore", ".gitmodules", "main.py", *inside]
    assert dirty(root) == []
    assert scan(root, clean=True).oid == scan(root).oid
    write(root, {"vendor/library/lib.py": "changed"})
    assert [change.what for change in dirty(root) or []] == ["submodule changed"]
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(root), str(clone))
    with pytest.raises(PxError) as caught:
        packed(clone)
    assert caught.value.code == "PX921"
    assert "git submodule update --init" in str(caught.value)
    (clone / ".pxignore").write_text("vendor/\n")
    assert "main.py" in packed(clone)


def test_a_clean_tree_is_what_is_tracked_and_what_pxignore_says(tmp_path: Path) -> None:
    files = {"main.py": "", "docs/a.md": "", "build/kept.txt": "", ".gitignore": "*.log\n/data/\n"}
    root = repository(tmp_path / "p", files)
    write(root, {"x.log": "", "data/model.bin": "", "data/more/x": "", ".env": "", "src/__pycache__/a.pyc": ""})
    for lines in ("", "docs/\n", "*.md\n!/data/\n", "!data/model.bin\n"):
        write(root, {".pxignore": lines})
        git(root, "add", "-A")
        git(root, "commit", "-qm", "rules", "--allow-empty")
        assert dirty(root) == []
        assert scan(root, clean=True).entries == scan(root).entries


def test_pxignore_takes_out_what_is_committed_and_puts_back_what_git_ignores(tmp_path: Path) -> None:
    root = repository(
        tmp_path / "p", {"main.py": "", "docs/a": "", "tests/t": "", ".gitignore": "static/\n", ".pxignore": "docs/\n"}
    )
    write(root, {"static/dist/app.js": "", "static/src/app.ts": ""})
    assert packed(root, exclude=("tests/",)) == [".gitignore", ".pxignore", "main.py"]
    (root / ".pxignore").write_text("docs/\n!static/dist/\n")
    assert packed(root, exclude=("/tests",)) == [".gitignore", ".pxignore", "main.py", "static/dist/app.js"]


def test_links(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"a/b": ""})
    (root / "a" / "inside").symlink_to("../a/b")
    (root / "dangling").symlink_to("not-there")
    (root / "folder").symlink_to("a")
    links = [e for e in scan(root).entries if e[0] == "l"]
    assert links == [["l", "a/inside", "../a/b"], ["l", "dangling", "not-there"], ["l", "folder", "a"]]
    for target in ("/etc/passwd", "../outside", "a/../../outside", str(root / "a" / "b")):
        (root / "out").unlink(missing_ok=True)
        (root / "out").symlink_to(target)
        with pytest.raises(PxError) as caught:
            scan(root)
        assert caught.value.code == "PX921"
        assert "out cannot be packed" in caught.value.what
        assert target in caught.value.what
    (root / ".gitignore").write_text("/out\n")
    scan(root)


def test_modes_and_empty_directories(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"a": "", "run": "", "odd": ""})
    (root / "a").chmod(0o600)
    (root / "run").chmod(0o700)
    (root / "odd").chmod(0o654)
    (root / "empty" / "deeper").mkdir(parents=True)
    assert [(e[1], e[2]) for e in scan(root).entries] == [("a", 0o644), ("odd", 0o644), ("run", 0o755)]


def test_a_socket_is_left_out(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"a": ""})
    os.mkfifo(root / "pipe")
    assert packed(root) == ["a"]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    only_for("an ordinary user", "root may read everything; tests/integration/oci drops its privileges to test this")
    root = write(tmp_path / "p", {"sub/locked": ""})
    (root / "sub" / "locked").chmod(0)
    with pytest.raises(PxError, match="PX921") as caught:
        scan(root)
    assert "sub/locked" in caught.value.what


def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"a": ""})
    with open(os.fsencode(root) + b"/caf\xe9", "wb"):
        pass
    with pytest.raises(PxError) as caught:
        scan(root)
    assert r"caf\xe9" in caught.value.what


def test_a_file_that_changes_while_it_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "p", {"a": "x" * 10, "log": "y" * 10})
    real = os.read

    def read(fd: int, size: int) -> bytes:
        # Somebody appends to the file between two reads of it.
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/log"):
            with (root / "log").open("a") as f:
                f.write("z")
            monkeypatch.setattr(os, "read", real)
        return real(fd, size)

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(PxError) as caught:
        scan(root)
    assert caught.value.what == "log cannot be packed: it changed while it was packed"


@pytest.mark.parametrize("new", ["other text", "longer text than it was", "", None])
def test_a_file_that_changes_after_it_was_hashed(new: str | None, home: Home, tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"a": "", "b": "some texts"})
    tree = scan(root)
    if new is None:
        (root / "b").unlink()
    else:
        (root / "b").write_text(new)
    with pytest.raises(PxError) as caught:
        app_layer(Blobs(home), tree)
    assert caught.value.code == "PX921"
    assert caught.value.what.startswith("b cannot be packed")
    assert list(Blobs(home).digests()) == [], "nothing half-made is kept"


def test_commit(tmp_path: Path) -> None:
    root = tmp_path / "p"
    root.mkdir()
    git(root, "init", "-q")
    assert commit_of(root) is None
    repository(root, {"a": ""})
    git(root, "remote", "add", "origin", "https://user:secret@example.org/x.git")
    found = commit_of(root)
    assert found is not None
    assert (len(found.revision), found.time, found.remote) == (40, 1_700_000_000, "https://example.org/x.git")


def test_two_clones_give_one_layer(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = repository(tmp_path / "p", {"a/b.py": "print()", "run": "#!/bin/sh", ".gitignore": "x\n"})
    (first / "run").chmod(0o755)
    git(first, "commit", "-qam", "mode")
    layers = []
    for name, mask in (("one", 0o022), ("two", 0o077)):
        old = os.umask(mask)
        git(tmp_path, "clone", "-q", str(first), str(tmp_path / name))
        os.umask(old)
        write(tmp_path / name, {"x": name})
        monkeypatch.setenv("TZ", "America/Lima" if mask == 0o077 else "Asia/Tokyo")
        layers.append(app_layer(Blobs(home), scan(tmp_path / name)))
    assert layers[0] == layers[1]


PATTERNS = (
    "*.log", "!*.log", "build/", "/build", "!build/", "a/*", "!a/b", "a/b/", "**/c", "a/**", "!a/**/d.txt", "/a/b/c",
    "x?y", "[ab]", "d.txt", "!d.txt", "*", "!*/", "#x", r"\#x", "b/c", "!/a", "a/**/c", "c/**", "trailing ", "e/",
    "!e/f",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_random_trees_as_git_sees_them(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "c", "e", "build", "d.txt", "x.log", "x1y", "#x", "f"]
    root = tmp_path / "p"
    root.mkdir()
    for _ in range(60):
        parts = [rng.choice(names) for _ in range(rng.randint(1, 4))]
        target = root.joinpath(*parts)
        if not any(p.is_file() for p in target.parents) and not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("")
    folders = [root, *rng.sample(sorted(p for p in root.rglob("*") if p.is_dir()), 3)]
    for folder in folders:
        (folder / ".gitignore").write_text("\n".join(rng.sample(PATTERNS, rng.randint(1, 5))) + "\n")
    git(root, "init", "-q")
    some = rng.sample(sorted(p for p in root.rglob("*") if p.is_file() and ".git" not in p.parts), 5)
    git(root, "add", "-f", *map(str, some))
    expected = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    assert sorted(path for path, _ in chosen(root)) == sorted({path for path in expected if path})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    assert dirty(root) == []
    assert sorted(chosen(root, clean=True)) == sorted(chosen(root))
