"""The record of a project: what was built for it, and whether anything changed since.

One JSON file for each project under ``PX_HOME/refs``.  :mod:`px.project.situation` writes it.  Nothing else is parsed
on the warm path, and everything that is not a plain yes is left to the full look in :mod:`px.project.situation`.
"""

from __future__ import annotations

import os
import stat

from px import DATA, __version__
from px.warm.spec import ENV, Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

VERSION = 5
HOST, SANDBOX = "host", "sandbox"
SANDBOX_TABLE = "[tool.px.sandbox]"
"""The name of the one part of a project that only its sandbox is made from."""
# A file that was written this recently can change again without its time showing it.
_RACY_NS = 2_000_000_000
_LONGEST_NAME = 200


class Built(Frozen):
    """What both targets have: from which inputs it was made, with which selection, and what it consists of."""

    inputs: dict[str, str]
    """The parts of the project that it was made from (:mod:`px.project.parts`), each with its hash."""
    selection: dict[str, Any]
    """The groups and extras that were asked for (:class:`px.project.selection.Selection`)."""
    profile_oid: str
    directory: str
    """Where it lies: the host env itself, or the directory of the sandbox's image."""
    variables: dict[str, str]
    """What every process in it starts with."""
    objects: tuple[str, ...]
    """``kind/oid`` of every object of the store that it was made from."""
    made_by: str = __version__
    """The px that built it."""

    @property
    def whole(self) -> bool:
        """Whether it is complete where the record says that it is."""
        raise NotImplementedError

    @property
    def untouched(self) -> bool:
        """Whether it is certainly as it was made; a no only means that it must be looked at closely."""
        return self.whole


class BuiltHost(Built):
    """The env of this machine: a virtual environment under ``PX_HOME/envs``."""

    @property
    def whole(self) -> bool:
        """Whether it is complete, by its marker, which is written last; it needs its interpreter too."""
        return all(os.path.exists(os.path.join(self.directory, name)) for name in ("px-env.json", "bin/python"))


class BuiltSandbox(Built):
    """A project's sandbox, ready to be run: what ``px run --sandbox``, ``px pack image`` and Metaflow start from."""

    root: str = ""
    """The project, which is mounted at ``/app``; empty for a bare base."""
    sbx_id: str = ""
    base: str = ""
    base_os_oid: str = ""
    capabilities: tuple[str, ...] = ()
    python: str = ""
    """Its interpreter, such as python3.11."""
    layers: tuple[str, ...] = ()
    """The unpacked trees, lowest first; the project's own layer, if it has one, is the last."""
    project_layer: str = ""
    """The oid of the project's own layer: its metadata and scripts, which are no part of the ``sbx_id``."""
    git_write: bool = False
    """Whether the manifest lets targets write to the project's repository."""
    siblings: dict[str, str] = {}  # noqa: RUF012 - frozen, and never changed
    """Editable dependencies that lie outside of the project: where they are inside -> on this machine."""
    read_only: bool = False
    """Whether the manifest wants the working tree mounted so."""
    tables: dict[str, list[Any]] = {}  # noqa: RUF012 - frozen, and never changed
    """Those of px's own tables that it was derived from, looked at as a record looks at its inputs."""

    marks: dict[str, list[int]] = {}  # noqa: RUF012 - frozen, and never changed
    """Its image's manifest and its layers as they looked when it was made."""

    @property
    def interpreter(self) -> str:
        """The program that runs Python in it: that of the project's env, or the base's own."""
        return f"{ENV}/bin/python" if self.root else "/usr/bin/python3"

    @property
    def whole(self) -> bool:
        return os.path.exists(os.path.join(self.directory, "manifest.json")) and all(map(os.path.isdir, self.layers))

    @property
    def untouched(self) -> bool:
        """The cheap check of every run: a manifest that was written to, or a layer that was replaced, shows in it.

        What was changed inside of a layer does not: ``px store verify`` reads every byte.
        """
        return bool(self.marks) and all(mark(path) == known for path, known in self.marks.items())

    def marked(self) -> BuiltSandbox:
        """The same, with what is there now taken as good."""
        paths = (os.path.join(self.directory, "manifest.json"), *self.layers)
        return self.replace(marks={path: mark(path) for path in paths})


TARGETS: dict[str, type[Built]] = {HOST: BuiltHost, SANDBOX: BuiltSandbox}


def mark(path: str) -> list[int]:
    """What tells a file or directory from another one in its place; [] if there is none."""
    try:
        st = os.stat(path)
    except OSError:
        return []
    return [st.st_ino, st.st_mtime_ns, st.st_size]


def home_root() -> str:
    """``PX_HOME``, or ``~/.px``."""
    configured = os.environ.get("PX_HOME")
    return os.path.abspath(os.path.expanduser(configured)) if configured else os.path.expanduser("~/.px")


def here() -> str:
    """The working directory as the user typed it (symlinks and all) where that is still true."""
    typed = os.environ.get("PWD", "")
    try:
        if os.path.isabs(typed) and os.path.samefile(typed, "."):
            return typed
    except OSError:
        pass
    return os.getcwd()


def record_name(root: str) -> str:
    """The file name of a project's record: its path, or a hash of it where that is too long for a file name."""
    plain = root.replace("%", "%25").replace("/", "%2F")
    if len(os.fsencode(plain)) > _LONGEST_NAME:
        from hashlib import sha256

        plain = sha256(os.fsencode(root)).hexdigest()
    return f"{plain}.json"


def find(directory: str, target: str) -> tuple[dict[str, Any], Built] | None:
    """The record of the project around ``directory``, and its env, if that is certainly what the files ask for."""
    refs = os.path.join(home_root(), "refs")
    nearest, at = "", directory
    while True:
        if os.path.isfile(os.path.join(at, "pyproject.toml")):
            nearest = nearest or at
            raw = read(os.path.join(refs, record_name(at)))
            if raw is not None and raw["root"] == at and (at == nearest or _is_member(raw, nearest)):
                return _consistent(raw, target)
        above = os.path.dirname(at)
        if above == at:
            return None
        at = above


def _is_member(raw: dict[str, Any], nearest: str) -> bool:
    return os.path.relpath(nearest, raw["root"]) in raw["members"]


def _consistent(raw: dict[str, Any], target: str) -> tuple[dict[str, Any], Built] | None:
    if target not in raw["envs"]:
        return None
    built = TARGETS[target].from_json(raw["envs"][target])
    same = (
        built.inputs == parts_of(raw["parts"], target)
        and made_alike(built, raw["recorded_at"])
        and built.untouched
        and not _members_changed(raw)
        and not _files_appeared(raw)
        and unchanged(raw)
    )
    return (raw, built) if same else None


def parts_of(parts: dict[str, str], target: str) -> dict[str, str]:
    """Those parts of a project that the env of one target is made from."""
    return parts if target == SANDBOX else {name: parts[name] for name in parts if name != SANDBOX_TABLE}


def _members_changed(raw: dict[str, Any]) -> bool:
    if not raw["workspace"]:
        return False
    found = members(raw["root"], raw["workspace"]["members"], raw["workspace"]["exclude"])
    return bool([name for name in found if name != "."] != raw["members"])


def members(root: str, patterns: Iterable[str], exclude: Iterable[str]) -> list[str]:
    """The directories of a workspace's members, from the root: what matches, has a manifest and is not excluded."""
    from glob import glob

    def matched(wanted: Iterable[str]) -> set[str]:
        found = [glob(pattern, root_dir=root, recursive=True, include_hidden=True) for pattern in wanted]
        return {os.path.normpath(name) for names in found for name in names}

    found = matched(patterns) - matched(exclude)
    return sorted(name for name in found if os.path.isfile(os.path.join(root, name, "pyproject.toml")))


def _files_appeared(raw: dict[str, Any]) -> bool:
    for directory, pattern in raw["globs"]:
        there = os.path.join(raw["root"], directory)
        for name in matching(there, pattern):
            if os.path.relpath(os.path.join(there, name), raw["root"]) not in raw["inputs"]:
                return True
    return False


def matching(directory: str, pattern: str) -> list[str]:
    """The files that match a pattern, as paths from the directory."""
    from glob import glob

    found = glob(pattern, root_dir=directory, recursive=True)
    return [name for name in found if os.path.isfile(os.path.join(directory, name))]


def unchanged(raw: dict[str, Any]) -> bool:
    """Whether every input has the content that it had when the record was written."""
    root, inputs, at = raw["root"], raw["inputs"], raw["recorded_at"]
    return all(look(root, name, known, at)[4:] == known[4:] for name, known in inputs.items())


def look(root: str, name: str, known: list[Any] | None, recorded_at: int) -> list[Any]:
    """[size, mtime, ctime, inode, sha256] of an input, or [] if it is not there; read only if it may have changed."""
    path = os.path.join(root, name)
    try:
        st = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    if not stat.S_ISREG(st.st_mode):
        return []  # a target may have put a pipe there, which would never end
    signature = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]
    if known and known[:4] == signature and st.st_mtime_ns < recorded_at - _RACY_NS:
        return known
    import hashlib

    with open(path, "rb") as f:
        return [*signature, hashlib.sha256(f.read()).hexdigest()]


def made_alike(built: Built, recorded_at: int) -> bool:
    """Whether this px would make the same of the same inputs: by its version, and the tables that it would read."""
    tables = built.tables.items() if isinstance(built, BuiltSandbox) else ()
    same = all(look_at_table(name, known, recorded_at)[4:] == known[4:] for name, known in tables)
    return built.made_by == __version__ and same


def look_at_table(name: str, known: list[Any] | None = None, recorded_at: int = 0) -> list[Any]:
    """Like :func:`look`, for one of px's own tables, or the pins of a project, an absolute path.

    The locks of bases may lie elsewhere (``PX_BASES``, or px's home).
    """
    if name.startswith("bases/"):
        for place in (os.environ.get("PX_BASES"), os.path.join(home_root(), "bases")):
            found = look(place, name.removeprefix("bases/"), known, recorded_at) if place else None
            if found:
                return found
    return look(DATA, name, known, recorded_at)


def read(path: str) -> dict[str, Any] | None:
    """A record as it is on disk; None if there is none that this version can read."""
    try:
        with open(path, encoding="utf-8") as f:
            raw = _parse(f.read())
        return raw if raw["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _parse(text: str) -> Any:
    try:
        from _json import make_scanner  # json's own parser, without the regular expressions that json imports
    except ImportError:
        import json

        return json.loads(text)
    try:
        return make_scanner(_Strict())(text, 0)[0]  # type: ignore[arg-type]
    except StopIteration as e:
        raise ValueError(f"no JSON: {text[:40]!r}") from e


class _Strict:
    """How the scanner shall read: as ``json.loads`` does."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
