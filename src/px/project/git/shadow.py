"""git on a repository that may be hostile: px reads it, and runs nothing that it names.

A repository's configuration can name programs in many ways: filters, hooks, monitors, helpers, remotes, and includes of
files that do.  Submodules have configurations of their own.  No list of them would ever be complete.  So px's git does
not see the repository's directory.  It sees a shadow of it: a temporary directory with links to the objects, the refs
and the index, and with a configuration in which px wrote the few settings that say how files compare.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from px import foreign
from px.errors import PxError
from px.process import run
from px.warm import places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from px.process import Finished

_SMALL, _LARGE = 4096, 1 << 20
# How git lets people spell them, in any case; a name without a value is true.
_BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), "true") | dict.fromkeys(("false", "no", "off", "0"), "false")
_BOOLEAN = re.compile("true|false")
# What the shadow's configuration takes over, and which values.  None of these makes git start a program.
_KEPT = {
    "core.repositoryformatversion": re.compile("[0-9]"),
    "extensions.objectformat": re.compile("sha1|sha256"),
    "extensions.refstorage": re.compile("files|reftable"),
    **dict.fromkeys(("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode"), _BOOLEAN),
    **dict.fromkeys(("core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse", "core.trustctime"), _BOOLEAN),
    "core.checkstat": re.compile("default|minimal"),
    "core.autocrlf": re.compile("true|false|input"),
    "core.eol": re.compile("lf|crlf|native"),
    **dict.fromkeys(("core.excludesfile", "core.attributesfile"), re.compile("[^\0]*")),
}
_NEUTRAL = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}  # fmt: skip
# Of the repository's files: what all its working trees share, and what each has for itself.
_SHARED = ("objects", "refs", "packed-refs", "reftable", "shallow", "info/exclude", "info/attributes", "info/grafts")
_OWN = ("index", "info/sparse-checkout")


@dataclass(frozen=True)
class Repository:
    """Where a working tree's repository lies."""

    top: Path
    directory: Path
    """``.git``, or where that leads: a linked working tree and a submodule have a file there."""
    common: Path
    """What all working trees of the repository share; in most of them this is the directory itself."""

    def local(self) -> dict[str, str]:
        """The repository's own configuration, without what it includes; names in lower case, the last value counts."""
        found = _parsed(foreign.read(self.common, "config", _LARGE)) if (self.common / "config").exists() else {}
        if found.get("extensions.worktreeconfig") == "true" and (self.directory / "config.worktree").exists():
            found = {**found, **_parsed(foreign.read(self.directory, "config.worktree", _LARGE))}
        return found

    def settings(self) -> dict[str, str]:
        """Those settings of the user and the repository that say how files compare."""
        found = {**_of_user(_identity()), **self.local()}
        kept = {name: _spelt(name, value) for name, value in found.items() if name in _KEPT}
        return {name: value for name, value in kept.items() if _KEPT[name].fullmatch(value)}


def _spelt(name: str, value: str) -> str:
    return value if _KEPT[name].fullmatch(value) else _BOOLEANS.get(value.lower(), value)


def repository_of(directory: Path) -> Path | None:
    """The top of the git working tree around ``directory``, or None where there is none."""
    for candidate in (directory, *directory.parents):
        if (candidate / ".git").exists():
            return candidate
    return None


def locate(directory: Path) -> Repository:
    """The repository of the working tree around ``directory``."""
    top = repository_of(directory)
    if top is None:
        raise failure(directory, "There is no git repository here.")
    entry = top / ".git"
    found = entry.resolve() if entry.is_symlink() else entry
    if found.is_file():
        words = os.fsdecode(foreign.read(found.parent, found.name, _SMALL)).partition(":")
        found = (top / words[2].strip("\n ")).resolve()
    common = found
    if (found / "commondir").exists():
        common = found.parent.parent
        named = os.fsdecode(foreign.read(found, "commondir", _SMALL)).rstrip("\n")
        if found.parent.name != "worktrees" or not _same(found / named, common):
            raise failure(top, f"{found} is not the directory of a linked working tree.")
    repository = Repository(top, found, common)
    if not _belongs(repository, entry):
        raise failure(top, f"{entry} leads to {found}, which belongs to another working tree.")
    return repository


def _belongs(repository: Repository, entry: Path) -> bool:
    """Whether the directory that ``.git`` leads to is this working tree's: where it can say whose it is, it must."""
    directory = repository.directory
    if directory == entry:
        return True
    if (directory / "gitdir").exists():
        return _same(Path(os.fsdecode(foreign.read(directory, "gitdir", _SMALL)).rstrip("\n")), entry)
    local = repository.local()
    if "core.worktree" in local:
        return _same(directory / local["core.worktree"], repository.top)
    return directory.name != ".git" and local.get("core.bare") != "true"


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def git(directory: Path, *args: str, stdin: bytes | None = None) -> str:
    """Run git for its output; it may read everything, and writes and starts nothing."""
    repository = locate(directory)
    with shadow(repository) as made:
        done = _run(args, directory, {"GIT_DIR": made, "GIT_WORK_TREE": os.fspath(repository.top)}, stdin)
    return _checked(directory, args, done)


def git_without_repository(directory: Path, *args: str, stdin: bytes | None = None) -> str:
    """The same for what needs no repository, or names it."""
    return _checked(directory, args, _run(args, directory, {}, stdin))


@contextmanager
def shadow(repository: Repository) -> Iterator[str]:
    """A directory that git takes for the repository's own, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="px-git-") as made:
        # A copy: git takes no link for a HEAD.
        Path(made, "HEAD").write_bytes(foreign.read(repository.directory, "HEAD", _SMALL))
        Path(made, "config").write_text(_written(repository.settings()), "utf-8", "surrogateescape")
        Path(made, "info").mkdir()
        for names, source in ((_SHARED, repository.common), (_OWN, repository.directory)):
            for name in names:
                if (source / name).exists():
                    Path(made, name).symlink_to((source / name).absolute())
        for part in repository.directory.glob("sharedindex.*"):
            Path(made, part.name).symlink_to(part.absolute())
        yield made


def _written(settings: Mapping[str, str]) -> str:
    lines = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n{key} = "{quoted}"\n')
    return "".join(lines)


def _run(args: tuple[str, ...], directory: Path, more: Mapping[str, str], stdin: bytes | None = None) -> Finished:
    # A hook or an outer git may have set variables for another repository than the one we look at.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return _start(args, directory, {**env, **_NEUTRAL, **more}, stdin)


def _start(args: tuple[str, ...], directory: Path, env: Mapping[str, str], stdin: bytes | None) -> Finished:
    program = places.program("git")
    if program is None:
        raise failure(directory, "There is no git program on PATH.", "Install git.")
    return run([program, *args], cwd=directory, env={**env, "PATH": places.programs_path()}, stdin=stdin)


def _checked(directory: Path, args: tuple[str, ...], done: Finished) -> str:
    if not done.ok:
        raise failure(directory, (done.stderr.strip() or f"git {args[0]} ended with {done.code}").splitlines()[0])
    return done.stdout


def failure(directory: Path, reason: str, remedy: str = "") -> PxError:
    remedy = remedy or f"See what git says: git -C {directory} status"
    return PxError("PX924", directory=directory, reason=reason, remedy=remedy)


# --- configurations --------------------------------------------------------------------------------------------


@cache
def _parsed(config: bytes) -> dict[str, str]:
    # From its standard input, git follows no include.
    return _listed(git_without_repository(Path("/"), "config", "--file", "-", "--list", "-z", stdin=config))


@cache
def _of_user(_: tuple[str, ...]) -> dict[str, str]:
    """The configuration of the machine and of the user, whom px trusts; the repository has no part in it."""
    env = {name: value for name, value in os.environ.items() if name not in ("GIT_COMMON_DIR", "GIT_CONFIG")}
    done = _start(("config", "--list", "-z", "--includes"), Path("/"), env | {"GIT_DIR": os.devnull}, None)
    return _listed(done.stdout) if done.ok else {}


def _identity() -> tuple[str, ...]:
    """What the user's configuration depends on, as far as a cheap look shows."""
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
    values = [os.environ.get(name, "") for name in names]
    files = [values[2], f"{values[0]}/.gitconfig", f"{values[1] or values[0] + '/.config'}/git/config"]
    stamps = [str(os.stat(file).st_mtime_ns) if os.path.isfile(file) else "" for file in files]
    return (*values, *stamps)


def _listed(text: str) -> dict[str, str]:
    """Name -> value.  git writes sections and keys in lower case, and a name without a value is true."""
    rows = (row.partition("\n") for row in text.split("\0"))
    return {name: value if equals else "true" for name, equals, value in rows if name}
