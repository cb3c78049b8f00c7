"""Packages without a wheel, for the host target: built by uv with the host's own compiler.

When that fails, the error names the header, tool or library that is missing and points at the sandbox,
which brings its own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console, process
from px.errors import PxError
from px.project import uv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from px.env.artifacts import Artifact
    from px.env.runtime import Interpreter
    from px.store.canonical import Value

# What a failed build says when something of the system is not there, and how to say it to a person.
_MISSING = (
    (r"fatal error: ([\w./+-]+\.h[\w+]*): No such file", "The C header {} is missing."),
    (r"(?i)([\w-]+-config|pg_config) (?:executable )?not found", "The program {} is missing."),
    (r"No such file or directory: '([\w.+-]+)'", "The program {} is missing."),
    (r"error: command '([\w.+-]+)' failed: No such file", "The compiler {} is missing."),
    (r"(gcc|cc|g\+\+|clang|cargo|rustc|cmake|make|gfortran)(?:: command)? not found", "The program {} is missing."),
    (r"cannot find -l([\w.+-]+)", "The library lib{} is missing."),
    (r"Package '?([\w.+-]+)'?,? (?:was )?not found", "pkg-config does not know {}."),
    (r"No package '([^']+)' found", "pkg-config does not know {}."),
)


@dataclass(frozen=True)
class HostBuilder:
    """Builds with uv and whatever compiler this machine has."""

    interpreter: Interpreter
    root: Path
    """The project whose settings of uv hold for its dependencies too: build requirements come from its indexes."""
    offline: bool

    def identity(self, _: Artifact) -> list[Value]:
        return ["host", self.interpreter.runtime.payload(), os.fspath(self.interpreter.executable)]

    def begin(self, _: Sequence[Artifact]) -> None:
        """The host's compiler is there, or it is not."""

    def build(self, artifact: Artifact, source: Path, out: Path) -> Path:
        """A failure is PX204 with the cause."""
        console.info(f"Building {artifact.label} on this machine (it has no wheel for it) …")
        directory = source / artifact.subdirectory if artifact.subdirectory and source.is_dir() else source
        done = uv.uv(
            "build", "--project", self.root, "--wheel", "--out-dir", out, "--python", self.interpreter.executable,
            "--no-create-gitignore", directory, cwd=out, offline=self.offline,
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
    for pattern, text in _MISSING:
        found = re.search(pattern, log)
        if found:
            return text.format(found[1])
    return None


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
        done = process.run(step, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
        if not done.ok:
            reason = console.redact(done.stderr.strip())
            raise PxError("PX201", package=artifact.name, artifact=f"commit {artifact.commit}", reason=reason)
    return into
