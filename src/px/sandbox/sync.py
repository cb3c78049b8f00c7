"""Building the sandbox target of a project: lock -> profile -> capabilities -> definition -> layers -> image."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from px import console
from px.debian.lock import file_name
from px.env.artifacts import select
from px.env.credentials import Credentials
from px.env.packages import Packages
from px.env.profile import Editable, Profile
from px.errors import PxError
from px.project.fingerprint import look_at_table
from px.project.record import BuiltEnv
from px.sandbox import bases, image, merged
from px.sandbox.builder import SandboxBuilder
from px.sandbox.definition import SandboxDefinition
from px.sandbox.envlayer import ensure_bytecode, ensure_env_layers
from px.sandbox.inference import Inference, LockedPackage, infer_env
from px.sandbox.manifest import SandboxManifest, governing_manifest
from px.sandbox.projectlayer import ensure_project_layer
from px.sandbox.runtime import MACHINES, sandbox_python
from px.sandbox.runtimelayer import SandboxPython, ensure_runtime_layers
from px.store.files import write_json
from px.store.objects import Store, tree_spec

if TYPE_CHECKING:
    from pathlib import Path

    from px.env.artifacts import Artifact
    from px.home import Home
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.sandbox.bases import Base, Layer


# What px knows about packages and interpreters, and derives a sandbox from.
_TABLES = ("capabilities.toml", "distributions.toml", "sonames.toml", "pythons.toml")


@dataclass(frozen=True)
class Derived:
    """Everything that a project's lock and manifest determine about its sandbox."""

    manifest: SandboxManifest
    warning: str | None
    base: Base
    profile: Profile
    inference: Inference
    capabilities: frozenset[str]
    definition: SandboxDefinition
    python: SandboxPython
    builder: SandboxBuilder
    root: Path
    """The project, whose uv settings say where an interpreter comes from."""


def derive(
    store: Store,
    situation: Situation,
    selection: Selection,
    *,
    offline: bool,
    architecture: str | None = None,
    more: frozenset[str] = frozenset(),
) -> Derived:
    """Compute the definition; fetches, builds and inspects what it must, and never guesses.

    ``more`` are capabilities that an error asked for and the user let px add for this run (``--auto-add``).
    """
    project = situation.project
    member = project.current.path if project.current else None
    manifest, warning = governing_manifest(project.manifest.path, member)
    lock = bases.load_base_lock(manifest.base, architecture or bases.host_architecture())
    console.detail(f"base: {manifest.base} ({'the default' if manifest.base_is_default else 'from the manifest'})")
    base = bases.ensure_base(store, lock, offline=offline)
    python = sandbox_python(store, project, selection, base, offline=offline)
    runtime = python.runtime
    artifacts = select(store.home, project, selection, runtime, inputs=situation.inputs, offline=offline)
    _check_native(base, artifacts)
    builder = SandboxBuilder(store, base, python, project.root, manifest.enabled | more, offline)
    # What has wheels is compiled while the rest is still being built.
    compile_early = partial(ensure_bytecode, store, base, python, project.root, offline=offline)
    makers = Packages(store, project.root, Credentials(project), builder, offline=offline, on_wheels=compile_early)
    packages = makers.ensure([a for a in artifacts if not a.editable])
    profile = Profile(
        runtime=runtime,
        packages=packages,
        editables=tuple(Editable(a.name, a.directory) for a in artifacts if a.editable),
        variables=tuple(sorted(project.manifest.env.items())),
        runtime_payload=python.payload,
    )
    locked = [LockedPackage(p.name, p.version, p.oid, p.from_sdist) for p in packages]
    inference = infer_env(store, locked, _sonames(store, base), base.name)
    capabilities = manifest.effective(inference.capabilities) | more
    _log(manifest, inference, capabilities)
    definition = SandboxDefinition(base.oid, capabilities, profile.oid)
    return Derived(manifest, warning, base, profile, inference, capabilities, definition, python, builder, project.root)


def _check_native(base: Base, artifacts: tuple[Artifact, ...]) -> None:
    """A compiler of another architecture cannot be run here: say which packages would need one."""
    sources = [a.label for a in artifacts if a.kind != "wheel" and not a.editable]
    if base.architecture != bases.host_architecture() and sources:
        problem = f"these packages have no wheel for {base.architecture}, and px cannot build for it on this machine"
        fix = [f"Pack on an {base.architecture} machine, or use versions that have wheels: {', '.join(sources)}"]
        raise PxError("PX903", problem=f"{problem}: {', '.join(sources)}", fix=fix)


def _sonames(store: Store, base: Base) -> frozenset[str]:
    """The libraries that the base has; remembered, because its tree has thousands of entries and never changes."""
    path = store.home.cache / "sonames-1" / base.oid
    with suppress(OSError, ValueError):
        return frozenset(json.loads(path.read_bytes()))
    layer = merged.Layer(base.tree, tree_spec(store.payload(base.kind, base.oid)), base.oid)
    found = merged.base_sonames([layer], MACHINES[base.architecture], store.home)
    write_json(path, sorted(found), durable=False)
    return found


def _log(manifest: SandboxManifest, inference: Inference, capabilities: frozenset[str]) -> None:
    for name, reasons in inference.reasons.items():
        state = "added" if name in capabilities else "left out"
        for reason in reasons:
            console.detail(f"capability {name}: {state}; {reason.source}: {reason.text}")
    for name in sorted(manifest.enabled):
        console.detail(f"capability {name}: added; [tool.px.sandbox.capabilities].{name} = true")


def layers_of(store: Store, derived: Derived, *, offline: bool) -> tuple[Layer, ...]:
    """Every layer of the image, from the bottom up."""
    base = derived.base
    found: list[Layer | None] = [base, bases.ensure_bytecode_layer(store, base, offline=offline)]
    found.append(bases.ensure_system_layer(store, base, derived.capabilities, offline=offline))
    found += ensure_runtime_layers(store, base, derived.python, derived.root, offline=offline)
    found += ensure_env_layers(store, base, derived.profile, derived.python, derived.root, offline=offline)
    return tuple(layer for layer in found if layer is not None)


def build_sandbox(
    store: Store,
    situation: Situation,
    selection: Selection,
    *,
    offline: bool = False,
    more: frozenset[str] = frozenset(),
) -> BuiltEnv:
    """Make the sandbox image that the lock and the manifest describe, and say what it was made from."""
    derived = derive(store, situation, selection, offline=offline, more=more)
    if derived.warning:
        console.warn(derived.warning)
    layers = layers_of(store, derived, offline=offline)
    profile = derived.profile.save(store)
    made = image.ensure_image(store, derived.definition, derived.base, layers, derived.profile, derived.manifest)
    own = ensure_project_layer(store, situation.project, derived.profile.editables, derived.builder)
    trees = [*made.trees(store), *([own.tree] if own else [])]
    return BuiltEnv(
        inputs=situation.inputs,
        selection=selection.as_json(),
        profile=profile,
        env=os.fspath(image.image_directory(store.home, made.sbx_id)),
        variables=made.variables,
        objects=(*made.refs, *derived.profile.refs, *([f"layer/{own.oid}"] if own else [])),
        layers=tuple(os.fspath(tree) for tree in trees),
        details={
            "base": derived.base.name,
            "base_os_oid": derived.base.oid,
            "sbx_id": made.sbx_id,
            "auto": "true" if derived.manifest.auto else "false",
            "capabilities": ",".join(sorted(derived.capabilities)),
            "python": derived.profile.runtime.python,
            "project_layer": own.oid if own else "",
        },
        tables={name: look_at_table(name) for name in (f"bases/{_lock_file(derived)}", *_TABLES)},
    )


def _lock_file(derived: Derived) -> str:
    return file_name(derived.base.name, derived.base.architecture)


def ensure_sandbox(home: Home, directory: Path, *, offline: bool, frozen_by: str | None) -> BuiltEnv:
    """The sandbox of the project around ``directory``, built if need be: what ``px run --sandbox`` does first."""
    from px.project import rules
    from px.project.discovery import discover
    from px.project.situation import inspect, remember
    from px.project.state import Target

    store = Store(home)
    situation = inspect(home, discover(directory), offline=offline)
    allowed = rules.permit("run", situation.flags(Target.SANDBOX), frozen_by=frozen_by, target=Target.SANDBOX)
    built = situation.built(Target.SANDBOX)
    if built is None or allowed.must_build:
        with store.lock(f"project-{home_key(situation)}", "this project's sandbox"):
            situation = inspect(home, discover(directory), offline=offline)
            built = build_sandbox(store, situation, situation.selection(Target.SANDBOX), offline=offline)
            remember(situation, Target.SANDBOX, built)
    return built


def home_key(situation: Situation) -> str:
    from px.project.fingerprint import record_name

    return record_name(os.fspath(situation.project.root)).removesuffix(".json")
