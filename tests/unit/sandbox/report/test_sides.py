"""What the words of ``px sandbox diff`` mean, and how a commit is taken out of a repository that may be hostile."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from px.errors import PxError
from px.home import Home
from px.project.context import Context
from px.project.git.history import clone, resolve
from px.sandbox.definition import SBX_VERSION
from px.store.objects import Store
from px.workflow.compare.sides import Wanted, find_side, understand
from tests.support.needs import need

ID = "ab12cd34" * 8


def git(root: Path, *args: str) -> str:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *args], cwd=root, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a project in a folder of it, and two commits."""
    need("git")
    top = tmp_path / "repository"
    project = top / "project"
    project.mkdir(parents=True)
    git(top, "init", "-q")
    for number in (1, 2):
        (project / "pyproject.toml").write_text(f'[project]\nname = "a"\nversion = "{number}"\n')
        git(top, "add", "-A")
        git(top, "commit", "-qm", str(number))
    return project


@pytest.fixture
def context(root: Path, home: Home) -> Context:
    return Context(Store(home), root)


def built(home: Home, sbx_id: str) -> None:
    directory = home.sandbox / "images" / sbx_id
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text(json.dumps({"sbx_version": SBX_VERSION}))


def test_each_kind_is_recognised(context: Context, home: Home, root: Path) -> None:
    built(home, ID)
    (root / "app.tar").write_bytes(b"")
    (root / "layout").mkdir()
    (root / "layout" / "index.json").write_text("{}")
    (root / "folder").mkdir()
    assert understand(context, ID) == Wanted("sbx", ID)
    assert understand(context, ID[:12]) == Wanted("sbx", ID[:12])
    assert understand(context, "app.tar") == Wanted("image", "app.tar")
    assert understand(context, "layout") == Wanted("image", "layout")
    assert understand(context, "HEAD~1") == Wanted("commit", "HEAD~1")
    assert understand(context, "main") == Wanted("commit", "main")
    assert understand(context, ".") == Wanted("project", ".")
    assert understand(context, "registry.example.org/team/app:1") == Wanted("image", "registry.example.org/team/app:1")
    assert understand(context, "commit:folder") == Wanted("commit", "folder")
    assert understand(context, "image:HEAD") == Wanted("image", "HEAD")


def test_what_can_mean_two_things_is_asked_about(context: Context, home: Home, root: Path) -> None:
    (root / "main").write_bytes(b"")
    with pytest.raises(PxError) as caught:
        understand(context, "main")
    assert "it can mean a file and a commit; say which: image:main" in caught.value.what
    commit = git(root, "rev-parse", "HEAD")
    built(home, commit[:8] + "0" * 56)
    with pytest.raises(PxError) as caught:
        understand(context, commit[:8])
    assert "a sandbox that px built and a commit" in caught.value.what


@pytest.mark.parametrize("text", ["nothing", "v9", "0123456789abcdef", "--help", "HEAD:pyproject.toml", "HEAD^{tree}"])
def test_what_means_nothing_is_refused(context: Context, text: str) -> None:
    with pytest.raises(PxError) as caught:
        understand(context, text)
    assert caught.value.code == "PX040"


def test_ids_that_are_not_there_or_not_unique(context: Context, home: Home) -> None:
    built(home, "ab12cd34" + "0" * 56)
    built(home, "ab12cd34" + "1" * 56)
    with pytest.raises(PxError, match="PX040") as caught:
        find_side(context, Wanted("sbx", "ab12cd34"))
    assert "2 sandboxes begin with it" in caught.value.what
    for name in ("f" * 64, "../../etc", "", "AB12CD34"):
        with pytest.raises(PxError) as caught:
            find_side(context, Wanted("sbx", name))
        assert "px has built no sandbox of that id here" in caught.value.what


def test_a_commit_that_has_no_lock_says_so(context: Context) -> None:
    with pytest.raises(PxError) as caught:
        find_side(context, Wanted("commit", "HEAD~1"))
    assert caught.value.code == "PX102"
    assert "HEAD~1" in str(caught.value)


@pytest.mark.parametrize(
    "planted", ['[project]\nname = "x"\nversion = "1"\n', "[tool.uv.workspace]\nmembers = ['**']\n"]
)
def test_a_commit_without_the_project_is_not_looked_for_above(
    context: Context, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """Somebody else may have left a manifest in the directory of temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / "pyproject.toml").write_text(planted)
    (temporary / "uv.lock").write_text("version = 1\n")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    git(root, "rm", "-q", "-r", ".")
    git(root.parent, "commit", "-qm", "no project")
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "3"\n')
    with pytest.raises(PxError) as caught:
        find_side(context, Wanted("commit", "HEAD"))
    assert "the commit has no project there" in caught.value.what
    with pytest.raises(PxError) as caught:
        find_side(context, Wanted("commit", "HEAD~1"))
    assert caught.value.code == "PX102", "its own lock is missing, and no other is taken"


def test_a_commit_is_cloned_as_it_was(root: Path, tmp_path: Path) -> None:
    commit = resolve(root, "HEAD~1")
    assert commit == git(root, "rev-parse", "HEAD~1")
    (root / "pyproject.toml").write_text("changed = true\n")
    clone(root.parent, tmp_path / "clone", commit or "")
    assert 'version = "1"' in (tmp_path / "clone" / "project" / "pyproject.toml").read_text()
    assert git(tmp_path / "clone", "rev-parse", "HEAD") == commit


def test_a_commit_that_no_branch_has_can_be_cloned(root: Path, tmp_path: Path) -> None:
    git(root, "checkout", "-q", "--detach")
    (root / "more").write_text("x")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "alone")
    alone = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "main")
    clone(root.parent, tmp_path / "clone", alone)
    assert (tmp_path / "clone" / "project" / "more").read_text() == "x"


def test_nothing_that_the_repository_names_runs(root: Path, tmp_path: Path) -> None:
    evil = tmp_path / "ran"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {evil}\ncat\n")
    script.chmod(0o755)
    (root / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (root / "x.txt").write_text("x\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "attributes")
    commit = git(root, "rev-parse", "HEAD")
    for name in ("filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "core.sshCommand", "core.pager",
                 "uploadpack.packObjectsHook", "diff.evil.command", "core.gitProxy", "credential.helper"):  # fmt: skip
        git(root, "config", name, str(script))
    hooks = root.parent / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        (hooks / name).write_bytes(script.read_bytes())
        (hooks / name).chmod(0o755)
    assert resolve(root, "HEAD") == commit
    clone(root.parent, tmp_path / "clone", commit)
    assert (tmp_path / "clone" / "project" / "x.txt").read_text() == "x\n"
    assert not evil.exists()
