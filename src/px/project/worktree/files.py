"""Which files of the working tree go into an image, and which of them are not committed.

In a git repository: every tracked file, and every file that is neither tracked nor ignored (those make the
tree dirty, which the caller asks about first).  Elsewhere: every file that no ``.gitignore`` excludes.  Never:
version control, caches, virtual environments, ``.env`` files, ``.px/``, px's home, Metaflow's data of runs.
``.pxignore`` and the manifest's excludes take out more, committed or not; their ``!`` lines put back what git
ignores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from px import console
from px.errors import PxError
from px.project.git.tree import Change, Tracked, changes, exclude_files, governing_repository, settings, tracked
from px.project.worktree.ignore import OwnRules, Patterns, ignored, last_match, never
from px.store.tree import native
from px.warm.record import home_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Chosen(NamedTuple):
    """One file or link that is packed."""

    path: str
    executable: bool | None = None
    """As git has it, where the file system cannot say it (``core.fileMode`` is off); None: as the file has it."""


@dataclass(frozen=True)
class _Here:
    """What the walk knows in one directory."""

    path: str
    stack: tuple[Patterns, ...]
    tracked: Tracked
    base: str
    """Where the repository that ``tracked`` speaks of begins: a submodule has its own."""
    ways: frozenset[str]
    """Directories with tracked files somewhere below, by their full path."""
    recorded_modes: bool = False
    only_tracked: bool = False
    below_ignored: bool = False


def dirty(
    root: Path, *, exclude: Sequence[str] = (), outputs: Sequence[Path] = (), hidden: bool = True
) -> list[Change] | None:
    """What is not committed among what would be packed; None where there is no git repository to compare with.

    Without ``hidden``, only what ``git status`` knows: enough to see whether something changed since the last look.
    """
    if governing_repository(root) is None:
        return None
    rules, own = _own_rules(root, exclude), _inside(root, outputs)
    return [
        change
        for change in (*(_hidden(root, rules) if hidden else ()), *changes(root))
        if not _left_out(change.path.rstrip("/"), rules)
        and not (change.what == "untracked" and _is_in(change.path, own))
    ]


def _hidden(root: Path, rules: OwnRules) -> Iterator[Change]:
    """Tracked files at which ``git status`` does not look, so that it cannot say whether they are as committed."""
    for path in sorted(tracked(root).hidden):
        if not os.path.lexists(native(root, path)) and not _left_out(path, rules):
            raise cannot(path, "it is tracked but not checked out (a sparse checkout)", "git sparse-checkout disable")
        yield Change(path, "hidden from git status")


def _inside(root: Path, outputs: Sequence[Path]) -> frozenset[str]:
    """What px itself writes or reads in the tree: images, its home and the like, which are not the app's."""
    top = os.path.realpath(root)
    found = (os.path.relpath(os.path.realpath(path), top) for path in (*map(os.fspath, outputs), home_root()))
    return frozenset(path for path in found if path != "." and path.split("/")[0] != "..")


def _is_in(path: str, own: frozenset[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[: n + 1]) in own for n in range(len(parts)))


def _left_out(path: str, rules: OwnRules) -> bool:
    parts = path.split("/")
    for n in range(1, len(parts) + 1):
        directory = n < len(parts)
        if never(parts[n - 1], directory=directory) or rules.verdict("/".join(parts[:n]), directory=directory):
            return True
    return False


def _own_rules(root: Path, exclude: Sequence[str]) -> OwnRules:
    lines = list(exclude)
    if (root / ".pxignore").is_file():
        lines += (root / ".pxignore").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return OwnRules.of(lines)


def chosen(
    root: Path, *, exclude: Sequence[str] = (), outputs: Sequence[Path] = (), clean: bool = False
) -> Iterator[Chosen]:
    """Every file and link that is packed, in no particular order.

    In a tree that git just called ``clean`` those are the tracked ones, and nobody has to read ignore files.

    ``outputs`` are files and directories that px itself writes: left out unless they are tracked.
    """
    rules, own = _own_rules(root, exclude), _inside(root, outputs)
    pending = [_start(root, only_tracked=clean and not rules.asks)]
    while pending:
        here = pending.pop()
        for name, is_directory in _listed(root, here.path):
            path = f"{here.path}/{name}" if here.path else name
            if never(name, directory=is_directory) or rules.verdict(path, directory=is_directory):
                continue
            if path in own and path not in here.ways and path[len(here.base) :] not in here.tracked.files:
                continue
            if is_directory:
                below = _enter(root, here, path, rules)
                if below is not None:
                    pending.append(below)
            elif _wanted(here, path, rules):
                yield Chosen(path, _recorded_mode(here, path))


def _start(root: Path, *, only_tracked: bool) -> _Here:
    top = governing_repository(root)
    if top is None:
        return _Here("", _with_gitignore(root, "", ()), Tracked(), "", frozenset())
    found, configured = tracked(root), settings(root)
    if configured.get("core.autocrlf") == "true" or configured.get("core.eol") == "crlf":
        console.warn(
            "git is set to write CRLF line ends here (core.autocrlf, core.eol): clones without them give another image"
        )
    recorded = configured.get("core.filemode") == "false"
    if only_tracked:
        return _Here("", (), found, "", _ways(found, ""), recorded, only_tracked, below_ignored=True)
    outside = [p for file in exclude_files(root, configured) if (p := Patterns.read(file, "")) is not None]
    above = _above(root, top)
    stack = _with_gitignore(root, "", (*_shifted(outside, root, top), *above))
    return _Here("", stack, found, "", _ways(found, ""), recorded)


@dataclass(frozen=True)
class _Shifted(Patterns):
    """Patterns of a directory above the root: paths get their missing front before they are asked about."""

    front: str = ""

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        full = self.front + path
        return last_match(self.spec, full + "/" if directory else full)


def _shifted(patterns: Sequence[Patterns], root: Path, above: Path) -> Iterator[Patterns]:
    front = root.relative_to(above).as_posix()
    for one in patterns:
        yield _Shifted("", one.spec, "" if front == "." else front + "/")


def _above(root: Path, top: Path) -> Iterator[Patterns]:
    """The ``.gitignore`` files between the top of the repository and a project further down."""
    folders = [folder for folder in root.parents if folder == top or folder.is_relative_to(top)]
    for folder in reversed(folders):
        found = Patterns.read(folder / ".gitignore", "")
        if found is not None:
            yield from _shifted([found], root, folder)


def _with_gitignore(root: Path, path: str, stack: tuple[Patterns, ...]) -> tuple[Patterns, ...]:
    try:
        found = Patterns.read(root / path / ".gitignore", path)
    except PermissionError:
        raise _unreadable(path) from None
    return stack if found is None else (*stack, found)


def _ways(found: Tracked, base: str) -> frozenset[str]:
    ways: set[str] = set()
    for path in (*found.files, *(f"{submodule}/." for submodule in found.submodules)):
        parent = (base + path).rpartition("/")[0]
        while parent and parent not in ways:
            ways.add(parent)
            parent = parent.rpartition("/")[0]
    return frozenset(ways)


def _listed(root: Path, path: str) -> list[tuple[str, bool]]:
    """(name, whether it is a directory) of what lies in a directory; as in git, sockets and pipes do not count."""
    found = []
    try:
        with os.scandir(native(root, path) if path else os.fsencode(root)) as items:
            for item in items:
                name = item.name.decode("utf-8", "surrogateescape")
                if item.is_dir(follow_symlinks=False):
                    found.append((name, True))
                elif item.is_file(follow_symlinks=False) or item.is_symlink():
                    found.append((name, False))
                else:
                    console.detail(f"{path}/{name} is neither a file, a directory nor a link: not packed")
    except PermissionError:
        raise _unreadable(path) from None
    return found


def _enter(root: Path, here: _Here, path: str, rules: OwnRules) -> _Here | None:
    """What to know in a directory, or None if nothing in it is packed."""
    if path[len(here.base) :] in here.tracked.submodules:
        return _submodule(root, path, only_tracked=here.only_tracked)
    if here.only_tracked:
        return replace(here, path=path) if path in here.ways else None
    tracked_below = path in here.ways
    asked = rules.verdict(path, directory=True) is False
    out = here.below_ignored or ignored(here.stack, path, directory=True) or _is_environment(root, path)
    if out and not asked and not tracked_below and path not in rules.wanted:
        return None
    stack = _with_gitignore(root, path, here.stack)
    return replace(here, path=path, stack=stack, below_ignored=out and not asked)


def _is_environment(root: Path, path: str) -> bool:
    """A virtual environment under whatever name it has."""
    return os.path.lexists(native(root, f"{path}/pyvenv.cfg"))


def _submodule(root: Path, path: str, *, only_tracked: bool) -> _Here:
    if not os.path.lexists(native(root, f"{path}/.git")):
        raise cannot(path, "the submodule is not checked out", f"git submodule update --init --recursive {path}")
    found, configured = tracked(root / path), settings(root / path)
    recorded = configured.get("core.filemode") == "false"
    ways = _ways(found, path + "/")
    if only_tracked:
        return _Here(path, (), found, path + "/", ways, recorded, only_tracked, below_ignored=True)
    # A repository of its own: the outer one's ignore files do not reach into it.
    outside = [p for file in exclude_files(root / path, configured) if (p := Patterns.read(file, path)) is not None]
    stack = _with_gitignore(root, path, tuple(outside))
    return _Here(path, stack, found, path + "/", ways, recorded)


def _wanted(here: _Here, path: str, rules: OwnRules) -> bool:
    if path[len(here.base) :] in here.tracked.files or rules.verdict(path, directory=False) is False:
        return True
    return not here.below_ignored and not ignored(here.stack, path, directory=False)


def _recorded_mode(here: _Here, path: str) -> bool | None:
    name = path[len(here.base) :]
    return name in here.tracked.executable if here.recorded_modes and name in here.tracked.files else None


def _unreadable(path: str) -> PxError:
    return cannot(path or ".", "the directory cannot be read", f"Make it readable: chmod -R u+rX {path or '.'}")


def cannot(path: str, problem: str, remedy: str) -> PxError:
    return PxError("PX921", path=path, problem=problem, remedy=remedy)
