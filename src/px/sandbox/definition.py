"""The sandbox definition, its id, and how it follows from a project: lock -> profile -> capabilities -> definition.

Base, capabilities, profile and format fully determine an image, and nothing else goes into its ``sbx_id``.
``docs/reference/sandbox-id.md`` has the test vectors.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from px import console
from px.env.artifacts import select
from px.env.packages import Packages
from px.env.profile import Editable, Profile
from px.errors import PxError
from px.platforms import host_architecture, machine_of
from px.sandbox.build.builder import SandboxBuilder
from px.sandbox.layers.base import ensure_base, load_base_lock
from px.sandbox.layers.env import ensure_bytecode
from px.sandbox.layers.project import own_packages
from px.sandbox.layers.python import choose_python
from px.sandbox.manifest import SandboxManifest, governing_manifest
from px.sandbox.needs import merged
from px.sandbox.needs.inference import Inference, LockedPackage, infer_env
from px.store.canonical import canonical_encode, oid_of
from px.store.files import write_json

if TYPE_CHECKING:
    from px.debian.lock import BaseLock
    from px.env.artifacts import Artifact
    from px.project.selection import Selection
    from px.project.situation import Situation
    from px.sandbox.layers.base import Base
    from px.sandbox.layers.python import Ground
    from px.store.canonical import Value
    from px.store.objects import Store


SBX_VERSION = 1
"""The layout of images and the meaning of the capability and inference tables; raised when either changes so
that an image made before would not be what this px makes.  An integer here, in ``manifest.json`` and in the
hash alike: one number, one spelling."""


@dataclass(frozen=True)
class SandboxDefinition:
    """What fully determines a sandbox image."""

    base_os_oid: str
    capabilities: frozenset[str]
    profile_oid: str
    sbx_version: int = SBX_VERSION

    @property
    def payload(self) -> dict[str, Value]:
        return {
            "base_os_oid": self.base_os_oid,
            "capabilities": list(self.sorted_capabilities),
            "profile_oid": self.profile_oid,
            "sbx_version": self.sbx_version,
        }

    @property
    def sorted_capabilities(self) -> tuple[str, ...]:
        return tuple(sorted(self.capabilities))

    @property
    def encoded(self) -> bytes:
        """The canonical bytes that are hashed."""
        return canonical_encode("sandbox", self.payload)

    @property
    def sbx_id(self) -> str:
        return oid_of("sandbox", self.payload)


@dataclass(frozen=True)
class Derived:
    """Everything that is known about a sandbox before its image is made."""

    manifest: SandboxManifest
    warning: str | None
    """What a person should know about the manifest."""
    ground: Ground
    profile: Profile
    inference: Inference
    definition: SandboxDefinition
    builder: SandboxBuilder

    @property
    def base(self) -> Base:
        return self.ground.base

    @property
    def capabilities(self) -> frozenset[str]:
        return self.definition.capabilities


def derive(
    situation: Situation,
    selection: Selection,
    *,
    architecture: str | None = None,
    more: frozenset[str] = frozenset(),
    lock: BaseLock | None = None,
) -> Derived:
    """Compute the definition; fetches, builds and inspects what it must, and never guesses.

    ``more`` are capabilities that an error asked for and the user let px add for this run (``--auto-add``).
    ``lock`` is another lock than the one that px or the project has.
    """
    context, project = situation.context, situation.project
    manifest, warning = governing_manifest(project.manifest.path, project.current.path if project.current else None)
    console.detail(f"base: {manifest.base} ({'the default' if manifest.base_is_default else 'from the manifest'})")
    lock = lock or load_base_lock(manifest.base, architecture or host_architecture(), manifest.pins)
    base = ensure_base(context.store, lock)
    ground = choose_python(context, selection, base)
    artifacts = select(context, selection, ground.python.runtime, situation.inputs)
    _check_native(base, artifacts)
    builder = SandboxBuilder(ground, manifest.enabled | more, manifest.build)
    # What has wheels is compiled while the rest is still being built.
    makers = Packages(context, builder, on_wheels=partial(ensure_bytecode, ground))
    profile = Profile(
        runtime=ground.python.runtime,
        packages=makers.ensure([a for a in artifacts if not a.editable]),
        editables=tuple(Editable(a.name, a.directory) for a in artifacts if a.editable),
        variables=tuple(sorted(project.manifest.env.items())),
        runtime_payload=ground.python.payload,
    )
    locked = [LockedPackage(p.name, p.version, p.oid, p.from_sdist) for p in profile.packages]
    locked += own_packages(builder, profile.editables)
    inference = infer_env(context.store, locked, _sonames(context.store, base), base.name)
    capabilities = manifest.effective(inference.capabilities) | more
    _log(manifest, inference, capabilities)
    definition = SandboxDefinition(base.oid, capabilities, profile.oid)
    return Derived(manifest, warning, ground, profile, inference, definition, builder)


def _check_native(base: Base, artifacts: tuple[Artifact, ...]) -> None:
    """A compiler of another architecture cannot be run here: say which packages would need one."""
    sources = [a.label for a in artifacts if a.kind != "wheel" and not a.editable]
    if base.architecture != host_architecture() and sources:
        problem = f"these packages have no wheel for {base.architecture}, and px cannot build for it on this machine"
        fix = [f"Pack on an {base.architecture} machine, or use versions that have wheels: {', '.join(sources)}"]
        raise PxError("PX903", problem=f"{problem}: {', '.join(sources)}", fix=fix)


def _sonames(store: Store, base: Base) -> frozenset[str]:
    """The libraries that the base has; remembered, because its tree has thousands of entries and never changes."""
    path = store.home.cache("sonames") / base.oid
    with suppress(OSError, ValueError):
        return frozenset(json.loads(path.read_bytes()))
    found = merged.base_sonames([base.contents(store)], machine_of(base.architecture), store.home)
    write_json(path, sorted(found), durable=False)
    return found


def _log(manifest: SandboxManifest, inference: Inference, capabilities: frozenset[str]) -> None:
    for name, reasons in inference.reasons.items():
        state = "added" if name in capabilities else "left out"
        for reason in reasons:
            console.detail(f"capability {name}: {state}; {reason.source}: {reason.text}")
    for name in sorted(manifest.enabled):
        console.detail(f"capability {name}: added; [tool.px.sandbox.capabilities].{name} = true")
