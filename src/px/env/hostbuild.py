"""Packages without a wheel, for the host target: built by uv with the host's own compiler.

When that fails, the error names the header, tool or library that is missing and points at the sandbox,
which brings its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console, process
from px.env.complaints import complaints
from px.errors import PxError
from px.project import uv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.env.artifacts import Artifact
    from px.env.runtime import HostPython
    from px.project.context import Context
    from px.store.canonical import Value

# How to say to a person what kind of thing is missing.
_MISSING = {
    "header": "The C header {} is missing.",
    "program": "The program {} is missing.",
    "linker": "The library lib{} is missing.",
    "library": "The library {} is missing.",
    "pkgconfig": "pkg-config does not know {}.",
}


@dataclass(frozen=True)
class HostBuilder:
    """Builds with uv and whatever compiler this machine has."""

    context: Context
    """Its project's settings of uv hold for the dependencies too: build requirements come from its indexes."""
    interpreter: HostPython

    def identity(self, _: Artifact) -> list[Value]:
        return ["host", self.interpreter.runtime.payload(), os.fspath(self.interpreter.executable)]

    at_once = 1  # a host's compilers may share what they write, and uv already uses all cores

    def begin(self, _: Sequence[Artifact]) -> None:
        """The host's compiler is there, or it is not."""

    def learn(self, artifact: Artifact, error: PxError) -> bool:  # noqa: ARG002
        """This machine has what it has."""
        return False

    def build(self, artifact: Artifact, source: Path, out: Path) -> Path:
        """A failure is PX204 with the cause."""
        console.info(f"Building {artifact.label} on this machine (it has no wheel for it) …")
        directory = source / artifact.subdirectory if artifact.subdirectory and source.is_dir() else source
        done = uv.Uv(out, self.context.offline).run(
            "build", "--project", self.context.root, "--wheel", "--out-dir", out,
            "--python", self.interpreter.executable, "--no-create-gitignore", directory,
        )  # fmt: skip
        built = sorted(out.glob("*.whl"))
        if not done.ok or len(built) != 1:
            raise build_failure(artifact, done)
        return built[0]


def build_failure(artifact: Artifact, done: process.Finished) -> PxError:
    missing = missing_on_host(done.stderr)
    reason = missing or uv.explain(done.stderr)
    remedy = "Install what is missing with your system's package manager, then run the command again."
    return failure(artifact, reason, remedy)


def failure(artifact: Artifact, reason: str, remedy: str) -> PxError:
    sandbox = "px sync --sandbox"
    return PxError(
        "PX204", package=artifact.name, version=artifact.version, reason=reason, remedy=remedy, sandbox=sandbox
    )


def built_version(artifact: Artifact, wheel: Path) -> str:
    """The version of the wheel that was built; it must be the locked one, if one is locked."""
    from packaging.utils import parse_wheel_filename
    from packaging.version import Version

    version = parse_wheel_filename(wheel.name)[1]
    if artifact.version and version != Version(artifact.version):
        reason = f"It says that it is version {version}, and the lock has {artifact.version}."
        remedy = f"Lock what it says now: px update {artifact.name}"
        raise failure(artifact, reason, remedy)
    return artifact.version or str(version)


def missing_on_host(log: str) -> str | None:
    """The header, tool or library that a build log says it did not find."""
    found = next((c for c in complaints(log) if c.kind in _MISSING), None)
    return _MISSING[found.kind].format(found.name) if found else None


def checkout(artifact: Artifact, into: Path) -> Path:
    """Fetch the commit that the lock pins, with the tags before it: many versions are computed from these.

    What older commits contain is left where it is, if the server knows how to.
    """
    url = artifact.location.removeprefix("git+")
    steps: list[list[str | Path]] = [
        ["git", "init", "--quiet", into],
        ["git", "-C", into, "remote", "add", "origin", url],
        ["git", "-C", into, "fetch", "--quiet", "--filter=blob:none", "--tags", "origin", artifact.commit],
        ["git", "-C", into, "-c", "advice.detachedHead=false", "checkout", "--quiet", artifact.commit],
        ["git", "-C", into, "submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1"],
    ]
    for step in steps:
        done = process.run(step, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}, doing=f"Fetching {artifact.label}")
        if not done.ok:
            reason = console.redact(done.stderr.strip())
            raise PxError("PX201", package=artifact.name, artifact=f"commit {artifact.commit}", reason=reason)
    return into
