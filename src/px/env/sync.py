"""Building the host env of a project from its lock, from the selection of artifacts to the linked tree."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px import console
from px.env import hostenv
from px.env.artifacts import select
from px.env.credentials import Credentials
from px.env.editable import editable_files
from px.env.packages import Packages
from px.env.profile import Editable, Profile
from px.env.runtime import find_interpreter
from px.env.sdist import HostBuilder
from px.project.record import BuiltEnv

if TYPE_CHECKING:
    from px.env.artifacts import Artifact
    from px.env.runtime import Interpreter
    from px.project.discovery import Project
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.store.objects import Store


def build_host(
    store: Store, situation: Situation, selection: Selection, *, offline: bool = False, force: bool = False
) -> BuiltEnv:
    """Make the host env that the lock describes, and say what it was made from."""
    project = situation.project
    interpreter = find_interpreter(
        store.home,
        project.root,
        request=selection.python or os.environ.get("UV_PYTHON"),
        requires=project.manifest.requires_python,
        offline=offline,
    )
    console.detail(f"runtime: CPython {interpreter.runtime.version} at {interpreter.executable}")
    artifacts = select(store.home, project, selection, interpreter.runtime, inputs=situation.inputs, offline=offline)
    installed = [a for a in artifacts if not a.editable]
    editables = [a for a in artifacts if a.editable]
    builder = HostBuilder(interpreter, project.root, offline)
    makers = Packages(store, project.root, Credentials(project), builder, offline=offline)
    profile = Profile(
        runtime=interpreter.runtime,
        packages=makers.ensure(installed),
        editables=tuple(Editable(a.name, a.directory) for a in editables),
        variables=tuple(sorted(project.manifest.env.items())),
    )
    oid = profile.save(store)
    files = _editable_files(store, project, editables, interpreter, offline=offline)
    env = hostenv.ensure(store, profile, project.root, interpreter, files, force=force)
    console.detail(f"env: {env.path}")
    return BuiltEnv(
        inputs=situation.inputs,
        selection=selection.as_json(),
        profile=oid,
        env=os.fspath(env.path),
        variables=dict(profile.variables),
        objects=(f"profile/{oid}", *profile.refs),
    )


def _editable_files(
    store: Store, project: Project, editables: list[Artifact], interpreter: Interpreter, *, offline: bool
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for artifact in editables:
        path = (project.root / artifact.directory).resolve()
        found |= editable_files(store.home, artifact.name, path, interpreter, root=project.root, offline=offline)
    return found
