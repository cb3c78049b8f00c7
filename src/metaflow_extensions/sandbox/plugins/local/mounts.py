"""Which directories of this machine a local task sees, each as narrowly as possible.

* The working tree, writable, as in a plain local run; but not its repository, and not px itself.
* The datastore, read-only except for what this task writes: its own directory, the run's tags, the
  content-addressed data and the run's cards.
* The few files that the task's command names.

Nothing else of this machine is in the sandbox.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.errors import Unusable

if TYPE_CHECKING:
    from px.home import Home

Row = list[Any]
"""The fields of px's ``Mount``, as JSON has them."""
# The sandbox's own files are in these directories; a mount over one of them would hide its Python.
_SYSTEM = {Path(p) for p in ("/", "/usr", "/etc", "/var", "/opt")}
# Too many people and programs keep files in these.
_SHARED = {Path(p) for p in ("/tmp", "/home", "/mnt", "/srv")}  # noqa: S108


class Mounts:
    """The mounts of one task, in order: a later one lies over an earlier one."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.rows: list[Row] = []
        self.hidden: list[str] = []
        """px's own directory, where it lies in what a task sees."""
        self.scratch: list[str] = []
        """Temporary directories, to be removed after the task."""

    def share(self, directory: Path) -> None:
        """Show a directory with everything in it, writable."""
        self.rows.append([str(directory), str(directory), False])

    def show(self, path: Path, at: Path | None = None) -> None:
        """Show a file or directory, read-only, where it lies here or in another place."""
        target = at or path
        self.rows.append([str(path), str(target), True])
        real, home = Path(path).resolve(), self._home.root.resolve()
        if home.is_relative_to(real):
            self.hidden.append(str(target / home.relative_to(real)))

    def share_working_tree(self, script: Path, project: str, *, git_write: bool = False) -> None:
        for root in _roots(script, project):
            if _is_too_wide(root):
                self._share_python_files(root)
            else:
                self._share_tree(root, str(root), git_write=git_write)

    def share_project(self, project: str, *, git_write: bool = False, read_only: bool = False) -> None:
        """Show the project in a second place: where the sandbox's env looks for its packages."""
        from px.warm.spec import APP

        # A tree that lies there on this machine is left as it is.
        if project and not _is_too_wide(Path(project)) and not any(Path(r[1]).is_relative_to(APP) for r in self.rows):
            self._share_tree(Path(project), APP, git_write=git_write, read_only=read_only)

    def _share_tree(self, root: Path, target: str, *, git_write: bool, read_only: bool = False) -> None:
        from px.errors import PxError
        from px.warm.places import arrange
        from px.warm.spec import Mount

        tree = Mount(str(root), target, read_only)
        try:
            mounts, hidden = arrange(tree, (), str(self._home.root), git_write=git_write)
        except PxError as e:
            raise Unusable(str(e), read="docs/reference/errors.md") from None
        self.rows += [[m.source, m.target, m.read_only, m.own] for m in mounts]
        self.hidden += hidden

    def _share_python_files(self, root: Path) -> None:
        """Show only the Python files beside the flow, in an empty directory that the task may write to."""
        if root not in _SYSTEM:
            empty = tempfile.mkdtemp(prefix="px-task-")
            self.scratch.append(empty)
            self.rows.append([empty, str(root), False])
        for path in sorted(root.iterdir()):
            if _is_module(path):
                self.show(path)

    def share_datastores(self, task: Any) -> None:
        for root in _datastore_roots(task):
            self.show(root)
            for path in _written_by(task, root):
                path.mkdir(parents=True, exist_ok=True)
                self.share(path)


def _roots(script: Path, project: str) -> list[Path]:
    """The project, the directory of the flow, and the working directory, without those that lie in others."""
    wanted = [script.parent, Path.cwd()]
    if project:
        wanted.append(Path(project))
    if script.is_symlink():  # Python looks for modules beside the file, not beside the link
        wanted.append(script.resolve().parent)
    kept: list[Path] = []
    for root in sorted(set(wanted), key=lambda p: len(p.parts)):
        if not any(root.is_relative_to(other) and not _is_too_wide(other) for other in kept):
            kept.append(root)
    return kept


def _is_too_wide(root: Path) -> bool:
    """A home directory, or one above it, holds keys and mail and not only a flow."""
    return root in _SYSTEM | _SHARED or Path.home().is_relative_to(root)


def _is_module(path: Path) -> bool:
    # os.path, because pathlib raises at a directory that this user may not enter, such as /lost+found.
    return (path.suffix == ".py" and os.path.isfile(path)) or os.path.isfile(path / "__init__.py")


def _datastore_roots(task: Any) -> list[Path]:
    """The local directories of data and of metadata.  Usually they are the same."""
    from metaflow.plugins.datastores.local_storage import LocalStorage

    roots = []
    if task.datastore_type == "local":
        roots.append(Path(task.datastore_sysroot).absolute())
    if task.metadata_type == "local":
        found = LocalStorage.get_datastore_root_from_config(lambda *_a, **_k: None, create_on_absent=False)
        roots += [Path(found).absolute()] if found else []
    return list(dict.fromkeys(roots))


def _written_by(task: Any, root: Path) -> list[Path]:
    flow = root / task.flow_name
    run = flow / str(task.run_id)
    # A @parallel task starts its siblings itself, in the same sandbox, and they write beside it.
    own = run / task.step if task.ubf_context else run / task.step / str(task.task_id)
    cards = _card_root(root)
    # If Metaflow has no directory for cards yet, a step without cards must not make one.
    of_cards = [cards / task.flow_name / "runs" / str(task.run_id)] if cards.parent.is_dir() else []
    return [own, run / "_meta", flow / "data", *of_cards]


def _card_root(root: Path) -> Path:
    """Where Metaflow keeps cards: found from the working directory, or, with a setting of its own, beside the data."""
    from metaflow.plugins.cards.card_datastore import CardDatastore

    return Path(CardDatastore.get_storage_root("local") or root).absolute()
