"""The builder sandbox: wheels from sdists with the base's own compiler and headers, and nothing of the host's.

The source is unpacked and built inside, at a fixed path, without a network.  What the build requires is resolved by uv
in a sandbox of its own (:mod:`px.sandbox.uv`), as wheels and as of a fixed day, so that next year's build gets the
same tools; a requirement that has no wheel (PyGObject wants pycairo) is built first, in the same way.

Most of the time goes into unpacking compilers, so a source that shows nothing but C is built with the C part of
the set first (:mod:`px.debian.toolchain`); if it turns out to ask for more, it is built again with all.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from px import console
from px.debian import toolchain
from px.sandbox.layers.base import ensure_bytecode_layer
from px.sandbox.layers.python import ensure_runtime_layers
from px.sandbox.layers.system import closure, ensure_builder_layers, ensure_system_layer
from px.sandbox.needs.inference import build_capabilities
from px.store.canonical import oid_of
from px.store.files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from px.env.artifacts import Artifact
    from px.errors import PxError
    from px.project.settings import Settings
    from px.sandbox.build.work import Work
    from px.sandbox.layers.base import Base
    from px.sandbox.layers.layer import Layer
    from px.sandbox.layers.python import Ground
    from px.store.canonical import Value
    from px.store.objects import Store

RECIPE = 3
"""Raised by hand when a build's environment or the hook changes what a build gives."""


@dataclass
class SandboxBuilder:
    """Builds for one base and runtime.

    What a package is built with depends on that package alone: its row in px's table, what the manifest says for it,
    and what its build was found to ask for.  Capabilities that the manifest names for other reasons change nothing.
    """

    ground: Ground
    """Its project's uv settings say where build requirements come from."""
    capabilities: frozenset[str]
    """Those that the manifest names: a build that asks for one of them gets it."""
    told: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What the manifest says for single packages."""
    always: frozenset[str] = frozenset()
    """What every build here has: only the project's own has such."""
    compiler: bool = True
    """Whether there is a compiler; a project that only computes its version needs none."""
    within: frozenset[str] = frozenset()
    """The packages for whose build this builds a requirement; none of them can be one."""
    prepared: bool = False
    """Whether a source directory was made for the build: then it is taken as it is, repository and all."""
    _made: dict[tuple[str, ...], tuple[Path, ...]] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base(self) -> Base:
        return self.ground.base

    @property
    def store(self) -> Store:
        return self.ground.context.store

    @property
    def settings(self) -> Settings:
        return self.ground.context.settings

    @property
    def at_once(self) -> int:
        return os.cpu_count() or 1

    def identity(self, artifact: Artifact) -> list[Value]:
        """What a wheel that is built here depends on, beside its source."""
        lock = self.base.lock
        names = set(lock.compiler) if self.compiler else set()
        for capability in self.needed(artifact):
            names.update(n for part in closure(lock, capability) for n in part)
        tools: list[Value] = [p.sha256 for p in lock.pinned(names - set(lock.base))]
        extra: list[Value] = [*self.settings.extra_requirements(artifact.name), *self.settings.build_constraints]
        extra += [[key, value] for key, value in sorted(self.settings.build_variables(artifact.name).items())]
        python, as_of = self.ground.python.identity, self.as_of(artifact)
        found: list[Value] = ["sandbox", RECIPE, self.base.oid, python, tools, as_of]
        return [*found, extra] if extra else found

    def needed(self, artifact: Artifact) -> list[str]:
        known, name = self.base.lock.capabilities, canonicalize_name(artifact.name)
        wanted = self.always | self.told.get(name, frozenset()) | set(build_capabilities(name))
        wanted |= self._asked(artifact) & self.capabilities
        return sorted(name for name in wanted if name in known)

    def _asked(self, artifact: Artifact) -> frozenset[str]:
        """What this package's build asked for when it failed for the lack of it."""
        try:
            return frozenset(json.loads(self._note(artifact).read_bytes()))
        except (OSError, ValueError):
            return frozenset()

    def _note(self, artifact: Artifact) -> Path:
        # A cache: without it the build fails once more, and says the same.
        source: list[Value] = [artifact.sha256, artifact.location, artifact.commit, artifact.subdirectory]
        return self.store.home.cache("build-needs") / oid_of("build-needs", [artifact.name, *source, self.base.oid])

    def learn(self, artifact: Artifact, error: PxError) -> bool:
        """Whether a build failed for the lack of a capability that the manifest names; then it can be built again."""
        names = error.fields.get("capabilities") if error.code == "PX902" else None
        asked = frozenset(names) & self.capabilities if isinstance(names, list) else frozenset()
        more = asked - set(self.needed(artifact))
        if more:
            console.info(f"{artifact.label} asks for {', '.join(sorted(more))}, which the manifest has; once more …")
            write_json(self._note(artifact), sorted(self._asked(artifact) | more), durable=False)
        return bool(more)

    def as_of(self, artifact: Artifact) -> str:
        """The day as of which build requirements are resolved: the base's, or the package's own if that is later."""
        pinned = datetime.fromisoformat(self.base.lock.date).isoformat()
        return max(pinned, artifact.uploaded) if artifact.uploaded else ""

    def begin(self, artifacts: Sequence[Artifact]) -> None:
        """Unpack compiler and headers while the sources are still being fetched."""
        for capabilities in dict.fromkeys(tuple(self.needed(a)) for a in artifacts):
            self._tools(capabilities, toolchain.C)

    def build(self, artifact: Artifact, source: Path, out: Path) -> Path:
        """Build one wheel; a failure is PX902 where px knows what is missing, else PX903 with the log's end."""
        capabilities = self.needed(artifact)
        said = f" with {', '.join(capabilities)}" if capabilities else ""
        console.info(f"Building {artifact.label} in the sandbox{said} …")
        work, wheel = self._build(artifact, source, out.parent / "work", capabilities)
        return work.take(wheel, out)

    def _build(self, artifact: Artifact, source: Path, scratch: Path, needed: Sequence[str]) -> tuple[Work, str]:
        from px.sandbox.build.work import Work  # most packages have wheels

        work = Work(self, artifact, scratch / "c", self._layers())
        more = work.prepare(source)  # needs no compiler, which may still be on its way
        capabilities = sorted({*needed, *work.capabilities})
        tools = self._tools(capabilities, toolchain.C)
        if self.compiler and not more:
            wheel = work.try_wheel(tools)
            if wheel is not None:
                return work, wheel
            work = Work(self, artifact, scratch / "all", self._layers())
            work.prepare(source)
        return work, work.wheel(self._tools(capabilities, toolchain.ALL))

    def _tools(self, capabilities: Sequence[str], parts: Sequence[str]) -> tuple[Path, ...]:
        key = (*parts, *capabilities) if self.compiler else ("no compiler", *capabilities)
        with self._making:  # a second thread that wants the same waits for it here
            if key not in self._made:
                found = self._tool_layers(capabilities, parts)
                self._made[key] = tuple(layer.tree for layer in found)
        return self._made[key]

    def _tool_layers(self, capabilities: Sequence[str], parts: Sequence[str]) -> tuple[Layer, ...]:
        if self.compiler:
            return ensure_builder_layers(self.store, self.base, capabilities, parts)
        layer = ensure_system_layer(self.store, self.base, capabilities)
        return (layer,) if layer is not None else ()

    def _layers(self) -> tuple[Path, ...]:
        """The base and its interpreter."""
        bytecode = ensure_bytecode_layer(self.store, self.base)
        return (self.base.tree, bytecode.tree, *(layer.tree for layer in ensure_runtime_layers(self.ground)))
