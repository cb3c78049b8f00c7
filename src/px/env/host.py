"""Building the host env of a project from its lock, from the selection of artifacts to the linked tree."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from px import console
from px.env import hostenv
from px.env.artifacts import select
from px.env.editable import editable_files
from px.env.hostbuild import HostBuilder
from px.env.layout import script_files
from px.env.packages import Packages
from px.env.profile import Editable, Profile
from px.env.runtime import find_interpreter
from px.project.manifest import FILE, Manifest
from px.project.state import Target
from px.warm.record import BuiltHost

if TYPE_CHECKING:
    from px.project.selection import Selection
    from px.project.situation import Situation


def build_host(situation: Situation, selection: Selection, *, force: bool = False) -> BuiltHost:
    """Make the host env that the lock describes, and say what it was made from."""
    context, project = situation.context, situation.project
    interpreter = find_interpreter(context, selection.python)
    console.detail(f"runtime: CPython {interpreter.runtime.version} at {interpreter.executable}")
    artifacts = select(context, selection, interpreter.runtime, situation.inputs)
    editables = [a for a in artifacts if a.editable]
    makers = Packages(context, HostBuilder(context, interpreter))
    profile = Profile(
        runtime=interpreter.runtime,
        packages=makers.ensure([a for a in artifacts if not a.editable]),
        editables=tuple(Editable(a.name, a.directory) for a in editables),
        variables=tuple(sorted(project.manifest.env.items())),
    )
    oid = profile.save(context.store)
    files: dict[str, bytes] = {}
    for artifact in editables:
        root = (project.root / artifact.directory).resolve()
        files |= editable_files(context, artifact.name, root, interpreter)
        if (root / FILE).is_file():
            files |= {f"bin/{name}": content for name, content in script_files(Manifest.read(root / FILE)).items()}
    env = hostenv.ensure(context, profile, interpreter, files, force=force)
    console.detail(f"env: {env.path}")
    return BuiltHost(
        inputs=situation.made_from(Target.HOST),
        selection=selection.as_json(),
        profile_oid=oid,
        directory=os.fspath(env.path),
        variables=dict(profile.variables),
        objects=(f"profile/{oid}", *profile.refs),
    )
