"""The sandbox of a commit, and that of the project as it is now.

A commit is cloned by px's own git, which runs nothing that a repository names, into a directory that is removed
afterwards.  Its lock is taken as it was committed: uv is not asked whether it fits, so nothing is resolved.  What has
to be built is built in a sandbox, as for the project itself.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from px.errors import PxError
from px.project.git.history import clone, resolve
from px.project.git.shadow import repository_of
from px.project.selection import Selection
from px.project.situation import glance, load
from px.project.state import Target
from px.sandbox.definition import derive
from px.sandbox.image import ensure_layers
from px.sandbox.report.contents import contents
from px.sandbox.report.diff import Side
from px.sandbox.report.explain import explain_capabilities, reason_line
from px.sandbox.report.trees import trees_in_store
from px.workflow.door import permitted, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.situation import Situation
    from px.sandbox.definition import Derived


def side_of_project(context: Context) -> Side:
    """The sandbox that ``px run --sandbox`` would use now."""
    with permitted(context, "sandbox diff") as situation:
        derived = derive(situation, situation.selection(Target.SANDBOX))
        return _side(derived, "the project", f"the project at {context.root}")


def side_of_commit(context: Context, revision: str) -> Side:
    """The sandbox of the project as it was at a commit."""
    root = context.root
    commit = resolve(root, revision) if repository_of(root) is not None else None
    if commit is None:
        raise _unusable(revision, "the project's repository has no such commit")
    with _checked_out(root, commit) as (tree, directory):
        there = serving(replace(context, directory=directory), Target.SANDBOX)
        if not directory.is_dir() or not there.project.root.is_relative_to(tree):
            raise _unusable(revision, "the commit has no project there")
        situation = _as_committed(there, revision)
        chosen = _chosen(load(context.home, root).envs, situation.project)
        return _side(derive(situation, chosen), revision, f"commit {commit[:12]} ({revision})")


def _unusable(revision: str, problem: str) -> PxError:
    example = "px sandbox diff HEAD~1 HEAD"
    return PxError("PX040", option="px sandbox diff", value=revision, problem=problem, example=example)


# px and uv look for a workspace and for settings in the directories above, and other users can write to /tmp.
_END_OF_SEARCH = {"pyproject.toml": '[tool.uv.workspace]\nmembers = []\nexclude = ["tree", "tree/**"]\n', "uv.toml": ""}


@contextmanager
def _checked_out(root: Path, commit: str) -> Iterator[tuple[Path, Path]]:
    """A clone of the project's repository, and the project's directory in it."""
    top = repository_of(root) or root
    with tempfile.TemporaryDirectory(prefix="px-commit-") as made:
        for name, text in _END_OF_SEARCH.items():
            Path(made, name).write_text(text)
        tree = Path(made, "tree")
        clone(top, tree, commit)
        yield tree, tree / root.relative_to(top)


def _as_committed(context: Context, revision: str) -> Situation:
    """The project of a clone, with a lock that counts as it is."""
    if not context.project.lock.is_file():
        raise PxError("PX102", lock=context.project.lock.name, reason=f"There is none in commit {revision}.")
    return replace(glance(context), lock_matches=True)


def _chosen(envs: object, project: Project) -> Selection:
    """The groups and extras that the project's sandbox was synced with, as far as the commit has them."""
    built = envs.get(Target.SANDBOX.value) if isinstance(envs, dict) else None
    wanted = Selection.from_json(built.selection) if built is not None else Selection()
    groups = {name for manifest in project.manifests for name in manifest.groups}
    extras = {name for manifest in project.manifests for name in manifest.extras}
    return replace(
        wanted,
        groups=tuple(name for name in wanted.groups if name in groups),
        no_groups=tuple(name for name in wanted.no_groups if name in groups),
        extras=tuple(name for name in wanted.extras if name in extras),
    )


def _side(derived: Derived, name: str, what: str) -> Side:
    present, _, _ = explain_capabilities(derived.manifest, derived.inference)
    store, definition = derived.ground.context.store, derived.definition
    return Side(
        name=name,
        what=what,
        base=derived.base.name,
        architecture=derived.base.architecture,
        capabilities=definition.sorted_capabilities,
        ids={"sbx_id": definition.sbx_id, "base_os_oid": derived.base.oid, "profile_oid": derived.profile.oid},
        contents=contents(trees_in_store(store, ensure_layers(derived))),
        reasons={one.name: tuple(reason_line(reason) for reason in one.reasons) for one in present},
    )
