"""One build in the builder sandbox.

The build may write to two directories of this machine, which it sees as ``/build/source`` and ``/build/out``, and to
nothing else.  What px puts there for it (the archive, the hook, the build requirements) it can only read.  px reads
back an answer and one wheel, by its bare name, from ``out``.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from px import bounds, console, foreign
from px.debian import toolchain
from px.engines.bubblewrap import Bubblewrap
from px.env.packages import Packages
from px.errors import PxError
from px.process import interruptible, tidy_end
from px.project import uv
from px.sandbox.build.failures import build_failure, full_disk
from px.sandbox.build.requirements import as_asked, sdists, shown_settings, without_wheels
from px.sandbox.uv import UvBox
from px.store.tree import remove_tree
from px.warm.spec import Mount, RunSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.env.artifacts import Artifact
    from px.process import Finished
    from px.sandbox.build.builder import SandboxBuilder
    from px.sandbox.layers.python import SandboxPython

HOOK = Path(__file__).parent / "hook.py"
# Newer setuptools take these instead of what the interpreter was built with, so they must say all that matters;
# -g0 because debug information, which Debian's python asks for, is ten times the size of the code.
_FLAGS = "-O2 -DNDEBUG -fwrapv -fstack-protector-strong -g0"
LARGEST_WHEEL = 16 << 30
LARGEST_ANSWER = 1 << 20
_COPIED_NOT = (".git", ".hg", ".px", ".venv", "__pycache__", "node_modules", "*.egg-info", ".tox", ".nox")


@dataclass
class Work:
    """One build, in a directory of this machine of which the sandbox sees parts."""

    builder: SandboxBuilder
    artifact: Artifact
    directory: Path
    layers: tuple[Path, ...]
    archive: Mount | None = None
    """The source, if it is not a directory."""
    said: str = ""
    capabilities: set[str] = field(default_factory=set)
    """Those of its build requirements that had to be built themselves."""

    @property
    def python(self) -> SandboxPython:
        return self.builder.ground.python

    def prepare(self, source: Path) -> bool:
        """Unpack the source and install what its build requires; whether it looks like more than C."""
        for name in ("requires", "out"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "wanted").touch()
        if source.is_dir():
            ignore = None if self.builder.prepared else shutil.ignore_patterns(*_COPIED_NOT)
            shutil.copytree(source, self.directory / "source", symlinks=True, ignore=ignore)
            answer = self.ask("prepare")
        else:
            (self.directory / "source").mkdir()
            self.archive = Mount(source.resolve(), f"/build/{source.name}", read_only=True)
            most = bounds.MEMBERS, bounds.unpacked(source.stat().st_size)
            answer = self.ask("prepare", f"/build/{source.name}", *map(str, most))
        self.install([*_requirements(answer), *self.builder.settings.extra_requirements(self.artifact.name)])
        return bool(answer.get("more"))

    def wheel(self, tools: tuple[Path, ...]) -> str:
        """Build with these layers on top of the base's; the wheel's name in ``out``."""
        self.layers = (*self.layers, *tools)
        answer = self.ask("build", "wheel")
        if "requires" in answer:
            self.install(_requirements(answer))
            answer = self.ask("wheel", "wheel")
        return str(answer.get("wheel"))

    def take(self, wheel: str, into: Path) -> Path:
        """Copy the wheel to a directory that the build never saw."""
        if not wheel.endswith(".whl"):
            raise PxError("PX903", problem=f"{self.artifact.label}: its build backend made no wheel")
        foreign.copy(self.directory / "out", wheel, into / wheel, LARGEST_WHEEL)
        try:
            parse_wheel_filename(wheel)
        except InvalidWheelFilename as e:
            raise PxError("PX903", problem=f"{self.artifact.label}: its build backend made no wheel: {e}") from e
        return into / wheel

    def try_wheel(self, tools: tuple[Path, ...]) -> str | None:
        """Build with a part of the compiler set; None if the build asked for anything of the rest."""
        try:
            wheel = self.wheel(tools)
        except PxError:
            if not self.lacks():
                raise
            return None
        return None if self.lacks() else wheel

    def lacks(self) -> bool:
        """Whether the build called a program or wanted a library that is in the other parts only."""
        called = foreign.read(self.directory, "wanted", LARGEST_ANSWER)
        found = called.decode("utf-8", "replace").splitlines()
        found += [match[0] for match in toolchain.MISSING.finditer(self.said)]
        if found:
            console.detail(f"{self.artifact.label} needs more than a C compiler: {', '.join(sorted(set(found)))}")
        return bool(found)

    def ask(self, *action: str) -> Any:
        log: list[bytes] = []
        spec = RunSpec(
            layers=self.layers,
            argv=(f"{self.python.directory}/python3", "/build/hook.py", *action),
            env=self.environment(),
            cwd="/build",
            mounts=self.mounts(),
            network=False,
            home="/tmp/home",  # noqa: S108 - inside the sandbox
            label=f"build-{self.artifact.name}",
        )
        doing = console.waiting(f"Building {self.artifact.label}")
        with open(os.devnull, "rb") as nothing, tidy_end(), interruptible(), doing:
            engine = Bubblewrap(self.builder.store.home)
            code = engine.run(spec, stdin=nothing.fileno(), stdout=log.append, stderr=log.append)
        text = b"".join(log).decode("utf-8", "replace")
        self.said += text
        for line in text.splitlines():
            console.debug(f"  {self.artifact.name}: {line}")
        if code != 0:
            raise self.failure(text)
        try:
            answer = json.loads(foreign.read(self.directory / "out", "answer.json", LARGEST_ANSWER))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise PxError("PX903", problem=f"{self.artifact.label}: its build left no answer that px understands")
        return answer

    def mounts(self) -> tuple[Mount, ...]:
        shown = [Mount(HOOK, "/build/hook.py", read_only=True)]
        shown += [Mount(self.directory / "requires", "/build/requires", read_only=True)]
        shown += [self.archive] if self.archive else []
        written = [Mount(self.directory / name, f"/build/{name}") for name in ("source", "out")]
        return (*shown, *written, Mount(self.directory / "wanted", toolchain.WANTED))

    def environment(self) -> dict[str, str]:
        uploaded = self.artifact.uploaded
        epoch = int(datetime.fromisoformat(uploaded).timestamp()) if uploaded else 315532800
        # Build tools ask PATH for the interpreter, and the base's own would be another one.
        own = f"{self.python.directory}:" if self.python.layer else ""
        return {
            "PATH": f"/build/requires/bin:{own}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": "/build/requires",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/tmp/home",  # noqa: S108 - inside the sandbox
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": str(epoch),
            "CFLAGS": _FLAGS,
            "CXXFLAGS": _FLAGS,
            "PX_SUBDIRECTORY": self.artifact.subdirectory,
            **self.builder.settings.build_variables(self.artifact.name),
            **({"SETUPTOOLS_SCM_PRETEND_VERSION": self.artifact.version} if self.artifact.kind == "vcs" else {}),
        }

    def install(self, requirements: Sequence[str]) -> None:
        """Put build requirements beside the source; those without wheels are built like the package itself."""
        if not requirements:
            return
        target = ["--only-binary", ":all:", "--target", "/build/requires"]
        done = self.uv_pip("install", *target, "--", *requirements)
        if not done.ok and (names := without_wheels(done.stderr)) and not names & self.builder.within:
            made = self.build_requirements(as_asked(requirements, names), names)
            shown = [Mount(wheel, f"/build/wheels/{wheel.name}", read_only=True) for wheel in made]
            done = self.uv_pip("install", *target, "--", *requirements, *(m.target for m in shown), shown=shown)
        if not done.ok:
            raise self.uninstallable(done.stderr)

    def uv_pip(self, command: str, *args: str, shown: Sequence[Mount] = ()) -> Finished:
        """Run uv for the day that counts, with the project's settings, in a sandbox in which nothing else runs."""
        builder = self.builder
        as_of = builder.as_of(self.artifact)
        flags = ["--exclude-newer", as_of] if as_of else []
        given = self.directory / "given"
        given.mkdir(exist_ok=True)
        if constraints := builder.settings.build_constraints:
            (given / "constraints").write_text("\n".join(constraints))
            flags += ["--constraint", "/build/given/constraints"]
        mounts = [Mount(self.directory / "requires", "/build/requires"), Mount(given, "/build/given", read_only=True)]
        where, settings = shown_settings(builder.ground.context, given)
        box = UvBox(builder.ground, "wheels")
        return box.run(["pip", command, "--quiet", *flags, *args], where, [*mounts, *settings, *shown])

    def build_requirements(self, requirements: Sequence[str], names: frozenset[str]) -> list[Path]:
        """Wheels of requirements that have none; their capabilities are there for this build too.

        uv only chooses the versions: without their dependencies, so that it need not build anything to know them.
        """
        builder = replace(self.builder, within=self.builder.within | {canonicalize_name(self.artifact.name)})
        given = self.directory / "given"
        given.mkdir(exist_ok=True)
        (given / "requires.in").write_text("\n".join(requirements))
        flags = [flag for name in sorted(names) for flag in ("--no-binary", name)]
        done = self.uv_pip("compile", "--no-deps", *flags, "--format", "pylock.toml", "/build/given/requires.in")
        if not done.ok:
            raise self.uninstallable(done.stderr)
        return [self._build_requirement(builder, artifact) for artifact in sdists(done.stdout)]

    def _build_requirement(self, builder: SandboxBuilder, artifact: Artifact) -> Path:
        out = self.directory / "built" / artifact.name / "out"
        out.mkdir(parents=True)
        fetched = Packages(builder.ground.context, builder).fetch(artifact)
        named = out.parent / artifact.filename  # the store does not keep the name, which says what it is
        named.symlink_to(fetched)
        while True:
            try:
                wheel = builder.build(artifact, named, out)
            except PxError as e:
                if not builder.learn(artifact, e):
                    raise
                remove_tree(out.parent / "work")
            else:
                self.capabilities |= set(builder.needed(artifact))
                return wheel

    def uninstallable(self, complaint: str) -> PxError:
        problem = f"the build requirements of {self.artifact.label} cannot be installed"
        fix = ["Look after the network and the index, if that is what uv complains about, or use another version."]
        return full_disk(complaint) or PxError(
            "PX903", problem=problem, why=[uv.explain(complaint)], fix=fix, whole_fix=True
        )

    def failure(self, log: str) -> PxError:
        have = frozenset(self.builder.needed(self.artifact))
        by_choice = self.builder.settings.from_source(self.artifact.name)
        own = self.artifact.kind == "directory"
        return build_failure(self.artifact.label, log, self.builder.base.name, have, by_choice=by_choice, own=own)


def _requirements(answer: dict[str, Any]) -> list[str]:
    found = answer.get("requires")
    if not isinstance(found, list) or not all(isinstance(row, str) for row in found):
        raise PxError("PX903", problem=f"build requirements must be a list of texts, and these are not: {found!r:.200}")
    return found
