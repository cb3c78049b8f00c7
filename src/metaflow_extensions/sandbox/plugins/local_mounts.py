"""Which of the host's directories a local task sees: the flow's own roots, each as narrowly as it can be.

The working tree is there as it is in a plain local run.  The datastore is read-only, except for what this task
writes: its own directory, the run's tags, the content-addressed data and the run's cards.  Nothing else is there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from px.home import Home

Row = list[Any]
"""Source, target, read-only: as JSON has it."""
_OF_THE_IMAGE = {Path(p) for p in ("/", "/usr", "/etc", "/var", "/opt")}
"""Directories without which the image is none."""
_OF_THE_HOST = {Path(p) for p in ("/tmp", "/home", "/mnt", "/srv")}  # noqa: S108


def task_mounts(
    home: Home,
    task: Any,
    *,
    script: Path,
    project: Path | None,
    interpreter: Path | None,
    python_path: str,
    config_file: str | None,
) -> tuple[list[Row], list[str]]:
    """The mounts in order, later over earlier; and the temporary directories that end with the task."""
    rows: list[Row] = []
    scratch: list[str] = []
    for root in _roots(script, project):
        if _is_too_wide(root):
            rows += _narrow(root, scratch)
        else:
            rows.append([str(root), str(root), False])
    rows += _hidden(home, rows)
    for root in _stores(task):
        rows += _store_rows(root, task)
    if interpreter is not None:
        rows.append([str(interpreter.parent.parent), str(interpreter.parent.parent), True])
    rows += [[path, path, True] for path in python_path.split(os.pathsep) if path and os.path.isdir(path)]
    if config_file:
        rows.append([config_file, config_file, True])
    return rows, scratch


def _roots(script: Path, project: Path | None) -> list[Path]:
    """The flow's directory (or its project's), that of the file which a link stands for, where Python looks for modules
    then, and the working directory, without those inside others."""
    flow = script.parent
    linked = [script.resolve().parent] if script.is_symlink() else []
    wanted = [project or flow, flow, *linked, Path.cwd()]
    kept: list[Path] = []
    for root in sorted(set(wanted), key=lambda p: len(p.parts)):
        if not any(root.is_relative_to(other) and not _is_too_wide(other) for other in kept):
            kept.append(root)
    return kept


def _is_too_wide(root: Path) -> bool:
    """A home directory, or anything above one, holds keys and mail, not only a flow."""
    return root in _OF_THE_IMAGE | _OF_THE_HOST or Path.home().is_relative_to(root)


def _narrow(root: Path, scratch: list[str]) -> list[Row]:
    """The Python files beside the flow: in an empty, writable directory in place of ``root``, or in the image's own."""
    rows: list[Row] = [[str(path), str(path), True] for path in sorted(root.iterdir()) if _is_module(path)]
    if root in _OF_THE_IMAGE:
        return rows
    empty = tempfile.mkdtemp(prefix="px-task-")
    scratch.append(empty)
    return [[empty, str(root), False], *rows]


def _is_module(path: Path) -> bool:
    # os.path, because pathlib raises at a directory that this user may not enter, such as /lost+found.
    return (path.suffix == ".py" and os.path.isfile(path)) or os.path.isfile(path / "__init__.py")


def _hidden(home: Home, rows: list[Row]) -> list[Row]:
    """px's own store must not be writable from inside, even where it lies within the working tree."""
    if not any(home.root.is_relative_to(target) for _, target, _ in rows):
        return []
    empty = home.cache("metaflow") / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    return [[str(empty), str(home.root), True]]


def _stores(task: Any) -> list[Path]:
    """The local roots of data and metadata; usually one and the same."""
    from metaflow.plugins.datastores.local_storage import LocalStorage

    roots = []
    if task.datastore_type == "local":
        roots.append(Path(task.datastore_sysroot).absolute())
    if task.metadata_type == "local":
        found = LocalStorage.get_datastore_root_from_config(lambda *_a, **_k: None, create_on_absent=False)
        roots += [Path(found).absolute()] if found else []
    return list(dict.fromkeys(roots))


def _store_rows(root: Path, task: Any) -> list[Row]:
    run = root / task.flow_name / str(task.run_id)
    # A @parallel task starts its siblings itself, in the same sandbox: they write beside it.
    own = run / task.step if task.ubf_context else run / task.step / str(task.task_id)
    writable = [
        own,
        run / "_meta",
        root / task.flow_name / "data",
    ]
    cards = _card_root(root)
    # Where Metaflow has nothing yet, the step makes it, in the working directory, and a step without cards must not.
    if cards.parent.is_dir():
        writable.append(cards / task.flow_name / "runs" / str(task.run_id))
    for path in writable:
        path.mkdir(parents=True, exist_ok=True)
    return [[str(root), str(root), True], *([str(path), str(path), False] for path in writable)]


def _card_root(root: Path) -> Path:
    """Where Metaflow keeps cards: found from the working directory, wherever the data is; or, with a root of their own
    in its settings, beside the data."""
    from metaflow.plugins.cards.card_datastore import CardDatastore

    return Path(CardDatastore.get_storage_root("local") or root).absolute()
