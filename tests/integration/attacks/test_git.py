"""A repository whose configuration names programs: px reads the repository, and runs none of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from px.errors import PxError
from px.home import Home
from px.project.git.history import Commit, commit_of
from px.project.git.tree import changes, exclude_files, governing_repository, settings, tracked
from px.project.worktree.files import chosen, dirty
from px.project.worktree.tree import scan
from px.sandbox.build.project import _Source
from tests.integration.sandbox.conftest import make_plain
from tests.support.needs import need
from tests.support.px import run_px

LIBRARY = "vendor/library"


@pytest.fixture(autouse=True)
def _git_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need("git")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text(
        '[user]\nname = T\nemail = t@example.org\n[protocol "file"]\nallow = always\n[safe]\ndirectory = *\n'
    )
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def git(where: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=where, check=True, capture_output=True, text=True).stdout


def repository(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "notes.txt").write_text("one\n")
    (root / "pyproject.toml").write_text('[project]\nname = "notes"\nversion = "1"\n')
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def victim_repository(tmp_path: Path) -> Path:
    """A repository with a submodule, and a file in each that git must compare by its content."""
    library = repository(tmp_path / "library")
    root = repository(tmp_path / "project")
    git(root, "submodule", "--quiet", "add", str(library), LIBRARY)
    git(root, "commit", "-qm", "with a submodule")
    touch(root)
    return root


def touch(root: Path) -> None:
    for place in (root, root / LIBRARY):
        (place / "notes.txt").write_text("two\n")
        os.utime(place / "notes.txt", (1, 1))


def look(root: Path, into: Path) -> None:
    """Everything that px asks of a repository: to pack it, to build it, to describe it."""
    for ask in (governing_repository, dirty, lambda r: list(chosen(r)), scan, settings, tracked, changes, commit_of,
                lambda r: exclude_files(r, {}), lambda r: _Source.of(r).copy(into),
                lambda r: _Source.of(r)._history(Commit("0" * 40, 0, "")), lambda r: dirty(r / LIBRARY)):  # fmt: skip
        try:
            ask(root)
        except PxError as e:
            print(e)  # refusing is fine, running is not


def configure(config: Path, text: str) -> None:
    with config.open("a") as f:
        f.write(text + "\n")


def program(marker: Path) -> str:
    """A program that any of git's settings can name: it leaves a trace and passes its input on."""
    path = marker.parent.parent / "program"
    path.write_text(f"#!/bin/sh\n: > {marker}\nexec cat\n")
    path.chmod(0o755)
    return str(path)


def clean_filter(root: Path, run: str) -> None:
    configure(root / ".git/config", f'[filter "x"]\nclean = {run}')
    configure(root / ".git/info/attributes", "* filter=x")


def smudge_filter(root: Path, run: str) -> None:
    configure(root / ".git/config", f'[filter "x"]\nsmudge = {run}\nrequired = true')
    configure(root / ".git/info/attributes", "* filter=x")


def process_filter(root: Path, run: str) -> None:
    configure(root / ".git/config", f'[filter "x"]\nprocess = {run}')
    configure(root / ".gitattributes", "* filter=x")


def included_filter(root: Path, run: str) -> None:
    configure(root / ".git/more", f'[filter "x"]\nclean = {run}')
    configure(root / ".git/config", "[include]\npath = more")
    configure(root / ".gitattributes", "* filter=x")


def included_by_condition(root: Path, run: str) -> None:
    configure(root / ".git/more", f'[filter "x"]\nclean = {run}')
    configure(root / ".git/config", '[includeIf "gitdir:**"]\npath = more\n[includeIf "onbranch:main"]\npath = more')
    configure(root / ".gitattributes", "* filter=x")


def filter_in_worktree_config(root: Path, run: str) -> None:
    configure(root / ".git/config", "[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true")
    configure(root / ".git/config.worktree", f'[filter "x"]\nclean = {run}')
    configure(root / ".gitattributes", "* filter=x")


def attributes_file(root: Path, run: str) -> None:
    configure(root / "attributes", "* filter=x")
    configure(root / ".git/config", f'[core]\nattributesFile = {root}/attributes\n[filter "x"]\nclean = {run}')


def filter_of_a_submodule(root: Path, run: str) -> None:
    configure(root / ".git/modules" / LIBRARY / "config", f'[filter "x"]\nclean = {run}')
    configure(root / LIBRARY / ".gitattributes", "* filter=x")


def replaced_submodule(root: Path, run: str) -> None:
    (root / LIBRARY / ".git").unlink()
    git(root / LIBRARY, "init", "-q")
    git(root / LIBRARY, "add", "-A")
    configure(root / LIBRARY / ".git/config", f'[filter "x"]\nclean = {run}')
    configure(root / LIBRARY / ".gitattributes", "* filter=x")
    (root / LIBRARY / "notes.txt").write_text("three\n")


def file_instead_of_directory(root: Path, run: str) -> None:
    (root / ".git").rename(root / "elsewhere")
    (root / ".git").write_text("gitdir: elsewhere\n")
    configure(root / "elsewhere/config", f'[filter "x"]\nclean = {run}')
    configure(root / "elsewhere/info/attributes", "* filter=x")


def foreign_common_directory(root: Path, run: str) -> None:
    (root / ".git").rename(root / "elsewhere")
    (root / ".git").mkdir()
    (root / ".git/commondir").write_text("../elsewhere\n")
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git/index").write_bytes((root / "elsewhere/index").read_bytes())
    configure(root / "elsewhere/config", f'[filter "x"]\nclean = {run}')
    configure(root / "elsewhere/info/attributes", "* filter=x")


def file_system_monitor(root: Path, run: str) -> None:
    configure(root / ".git/config", f"[core]\nfsmonitor = {run}")
    configure(root / ".git/modules" / LIBRARY / "config", f"[core]\nfsmonitor = {run}")


def hooks(root: Path, run: str) -> None:
    configure(root / ".git/config", f"[core]\nhooksPath = {root}/hooks")
    for directory in (root / "hooks", root / ".git/hooks", root / ".git/modules" / LIBRARY / "hooks"):
        directory.mkdir(exist_ok=True)
        for name in ("post-index-change", "post-checkout", "pre-commit", "reference-transaction", "fsmonitor-watchman"):
            (directory / name).write_text(f"#!/bin/sh\n{run} </dev/null\n")
            (directory / name).chmod(0o755)


def programs(root: Path, run: str) -> None:
    text = f"""
[core]
pager = {run}
editor = {run}
sshCommand = {run}
askPass = {run}
gitProxy = {run}
alternateRefsCommand = {run}
[pager]
status = {run}
log = {run}
[diff]
external = {run}
[diff "x"]
textconv = {run}
command = {run}
[merge "x"]
driver = {run}
[gpg]
program = {run}
[log]
showSignature = true
[credential]
helper = {run}
[uploadpack]
packObjectsHook = {run}
[alias]
status = "!{run}"
log = "!{run}"
ls-files = "!{run}"
[status]
submoduleSummary = true
[trace2]
eventTarget = {root}/trace
"""
    configure(root / ".git/config", text)
    configure(root / ".git/info/attributes", "* diff=x merge=x")


def lazy_fetch(root: Path, run: str) -> None:
    """A partial clone asks its remote for what it lacks, and a remote can be a command."""
    blob = git(root, "rev-parse", "HEAD:notes.txt").strip()
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    configure(
        root / ".git/config",
        "[core]\nrepositoryformatversion = 1\n[extensions]\npartialClone = origin\n[protocol]\nallow = always\n"
        f'[protocol "ext"]\nallow = always\n[remote "origin"]\nurl = "ext::{run}"\npromisor = true\n'
        "partialclonefilter = blob:none",
    )


ATTACKS: list[Callable[[Path, str], None]] = [
    *(clean_filter, smudge_filter, process_filter, included_filter, included_by_condition, filter_in_worktree_config),
    *(attributes_file, filter_of_a_submodule, replaced_submodule, file_instead_of_directory, foreign_common_directory),
    *(file_system_monitor, hooks, programs, lazy_fetch),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_nothing_that_a_repository_names_is_run(
    victim_repository: Path, marker: Path, tmp_path: Path, attack: Callable[[Path, str], None]
) -> None:
    """H2 and its relatives."""
    attack(victim_repository, program(marker))
    touch(victim_repository)
    look(victim_repository, tmp_path / "copy")
    assert not marker.exists()
    assert not (victim_repository / "trace").exists()


def test_a_program_of_the_project_called_git_is_not_run(
    victim_repository: Path, marker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An activated environment of the project puts a directory that the target can write in front of PATH."""
    binaries = victim_repository / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "git").symlink_to(program(marker))
    monkeypatch.setenv("PATH", str(binaries), prepend=os.pathsep)
    look(victim_repository, tmp_path / "copy")
    assert not marker.exists()


def test_a_link_to_another_repository_is_not_followed(tmp_path: Path) -> None:
    """A build sees the history of its project; the history of another one is not its business."""
    secret = repository(tmp_path / "secret")
    for link in ("file", "symbolic link"):
        root = tmp_path / link
        root.mkdir()
        (root / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
        if link == "file":
            (root / ".git").write_text(f"gitdir: {secret}/.git\n")
        else:
            (root / ".git").symlink_to(secret / ".git")
        with pytest.raises(PxError, match="belongs to another working tree"):
            _Source.of(root).copy(tmp_path / f"copy of {link}")


@pytest.mark.parametrize("way", ["alternates", "objects"])
def test_a_build_does_not_see_the_objects_of_another_repository(tmp_path: Path, way: str) -> None:
    secret = repository(tmp_path / "secret")
    (secret / "password").write_text("hidden\n")
    git(secret, "add", "-A")
    git(secret, "commit", "-qm", "second")
    root = repository(tmp_path / "project")
    directory = root / ".git"
    if way == "alternates":
        (directory / "objects/info").mkdir(exist_ok=True)
        (directory / "objects/info/alternates").write_text(f"{secret}/.git/objects\n")
    else:
        (directory / way).rename(directory / f"{way}-of-its-own")
        (directory / way).symlink_to(secret / ".git" / way)
    (directory / "HEAD").write_text(git(secret, "rev-parse", "HEAD"))
    copy = tmp_path / "copy"
    with pytest.raises(PxError, match="borrows"):
        _Source.of(root).copy(copy)
    assert not (copy / "password").exists()


# --- the whole way, from inside -------------------------------------------------------------------------------


@pytest.fixture
def project(warm: Home, tmp_path: Path) -> Path:
    root = make_plain(tmp_path / "plain")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


PLANT = """
import os
try:
    open("/app/.git/config", "a").write('[filter "x"]\\nclean = touch MARKER; cat\\n')
    open("/app/.git/info/attributes", "a").write("* filter=x\\n")
    print("planted")
except OSError as e:
    print(e.strerror)
os.utime("/app/pyproject.toml", (1, 1))
"""


@pytest.mark.network
def test_a_target_cannot_plant_a_filter(project: Path, marker: Path) -> None:
    """H2, as it was found: the target writes to the repository, and the next pack runs its command."""
    plant = PLANT.replace("MARKER", str(marker))
    said = run_px("run", "--sandbox", "python", "-c", plant, cwd=project)
    assert said.stdout == "Read-only file system\n"
    run_px("pack", "image", "--out", "../image", "--allow-dirty", cwd=project, check=False)
    assert not marker.exists()


@pytest.mark.network
@pytest.mark.parametrize(
    "attempt",
    [
        "os.rename('/app/.git', '/app/mine')",
        "shutil.rmtree('/app/.git')",
        "open('/app/.git/hooks/post-checkout', 'w')",
        "os.symlink('/tmp', '/app/.git/x')",
        "os.chmod('/app/.git/config', 0o777)",
    ],
)
def test_a_target_cannot_replace_the_repository(project: Path, attempt: str) -> None:
    before = sorted((p, p.lstat().st_mode) for p in (project / ".git").rglob("*"))
    said = run_px("run", "--sandbox", "python", "-c", f"import os, shutil\n{attempt}", cwd=project, check=False)
    assert said.returncode == 1
    assert sorted((p, p.lstat().st_mode) for p in (project / ".git").rglob("*")) == before


@pytest.mark.network
def test_what_a_target_may_write_to_runs_nothing_either(project: Path, marker: Path) -> None:
    """With the repository opened, px must still be safe from it."""
    plant = PLANT.replace("MARKER", str(marker))
    said = run_px("run", "--sandbox", "--git-write", "python", "-c", plant, cwd=project)
    assert said.stdout == "planted\n"
    for command in (("pack", "image", "--out", "../image", "--allow-dirty"), ("sync", "--sandbox", "--force")):
        run_px(*command, cwd=project, check=False)
        assert not marker.exists(), command
