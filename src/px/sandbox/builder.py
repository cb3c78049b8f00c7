"""The builder sandbox: wheels from sdists with the base's own compiler and headers, and nothing of the host's.

The source is unpacked and built inside, at a fixed path, without a network.  What the build requires is
resolved by uv outside, as wheels for the sandbox's platform and as of a fixed day, so that next year's
build gets the same tools; a requirement that has no wheel (PyGObject wants pycairo) is built first, in the same way.

Most of the time goes into unpacking compilers, so a source that shows nothing but C is built with the C part of
the set first (:mod:`px.debian.toolchain`); if it turns out to ask for more, it is built again with all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import console
from px.debian import toolchain
from px.engines.spec import Mount, RunSpec
from px.env.credentials import Credentials
from px.env.packages import Packages
from px.errors import PxError
from px.process import tidy_end
from px.project import uv
from px.project.discovery import discover
from px.sandbox import bases, patterns
from px.sandbox.capabilities import normalise
from px.sandbox.inference import build_capabilities
from px.sandbox.requirements import (
    as_asked,
    build_constraints,
    build_options,
    extra_requirements,
    from_source,
    sdists,
    settings_directory,
    use_interpreter,
    without_wheels,
)
from px.sandbox.runtimelayer import ensure_runtime_layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.env.artifacts import Artifact
    from px.process import Finished
    from px.sandbox.bases import Base, Layer
    from px.sandbox.runtimelayer import SandboxPython
    from px.store.canonical import Value
    from px.store.objects import Store

HOOK = Path(__file__).parent / "build_hook.py"
RECIPE = 3
"""Raised when this module or the hook changes what a build gives."""
# Newer setuptools take these instead of what the interpreter was built with, so they must say all that matters;
# -g0 because debug information, which Debian's python asks for, is ten times the size of the code.
_FLAGS = "-O2 -DNDEBUG -fwrapv -fstack-protector-strong -g0"
_COMPILER = re.compile(r":\d+: (fatal )?error: |\berror(\[\w+\])?: |undefined reference|cannot find -l")
_NEWEST_GLIBC = 40  # 2.40, of those that uv knows as platforms; wheels for an older one work with a newer
_COPIED_NOT = (".git", ".hg", ".px", ".venv", "__pycache__", "node_modules", "*.egg-info", ".tox", ".nox")


@dataclass
class SandboxBuilder:
    """Builds for one base and runtime; ``capabilities`` are those that the manifest names, for their headers."""

    store: Store
    base: Base
    python: SandboxPython
    root: Path
    """The project, whose uv settings say where build requirements come from."""
    capabilities: frozenset[str]
    offline: bool
    compiler: bool = True
    """Whether there is a compiler; a project that only computes its version needs none."""
    within: frozenset[str] = frozenset()
    """The packages for whose build this builds a requirement; none of them can be one."""
    prepared: bool = False
    """Whether a source directory was made for the build: then it is taken as it is, repository and all."""
    _made: dict[tuple[str, ...], tuple[Path, ...]] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)

    def identity(self, artifact: Artifact) -> list[Value]:
        lock = self.base.lock
        names = set(lock.compiler) if self.compiler else set()
        for capability in self._needed(artifact):
            names.update(n for part in bases.closure(lock, capability) for n in part)
        tools: list[Value] = [p.sha256 for p in lock.pinned(names - set(lock.base))]
        extra: list[Value] = [*extra_requirements(self.root, artifact.name), *build_constraints(self.root)]
        extra += [[key, value] for key, value in sorted(build_options(self.root, artifact.name).items())]
        found: list[Value] = ["sandbox", RECIPE, self.base.oid, self.python.identity, tools, str(self._as_of(artifact))]
        return [*found, extra] if extra else found

    def _needed(self, artifact: Artifact) -> list[str]:
        known = self.base.lock.capabilities
        wanted = self.capabilities | set(build_capabilities(artifact.name))
        return sorted(name for name in wanted if name in known)

    def _as_of(self, artifact: Artifact) -> str:
        """The day as of which build requirements are resolved: the base's, or the package's own if that is later."""
        pinned = datetime.fromisoformat(self.base.lock.date).isoformat()
        return max(pinned, artifact.uploaded) if artifact.uploaded else ""

    def begin(self, artifacts: Sequence[Artifact]) -> None:
        """Unpack compiler and headers while the sources are still being fetched."""
        for capabilities in dict.fromkeys(tuple(self._needed(a)) for a in artifacts):
            self._tools(capabilities, toolchain.C)

    def build(self, artifact: Artifact, source: Path, out: Path) -> Path:
        """Build one wheel; a failure is PX902 where px knows what is missing, else PX903 with the log's end."""
        capabilities = self._needed(artifact)
        said = f" with {', '.join(capabilities)}" if capabilities else ""
        console.info(f"Building {artifact.label} in the sandbox{said} …")
        wheel = self._build(artifact, source, out.parent / "work", capabilities)
        shutil.copy(wheel, out / wheel.name)
        return out / wheel.name

    def _build(self, artifact: Artifact, source: Path, scratch: Path, capabilities: Sequence[str]) -> Path:
        work = _Work(self, artifact, scratch / "c", self._layers())
        more = work.prepare(source)  # needs no compiler, which may still be on its way
        capabilities = sorted({*capabilities, *work.capabilities})
        tools = self._tools(capabilities, toolchain.C)
        if self.compiler and not more:
            wheel = work.try_wheel(tools)
            if wheel is not None:
                return wheel
            work = _Work(self, artifact, scratch / "all", self._layers())
            work.prepare(source)
        return work.wheel(self._tools(capabilities, toolchain.ALL))

    def _tools(self, capabilities: Sequence[str], parts: Sequence[str]) -> tuple[Path, ...]:
        key = (*parts, *capabilities) if self.compiler else ("no compiler", *capabilities)
        with self._making:  # a second thread that wants the same waits for it here
            if key not in self._made:
                found = self._tool_layers(capabilities, parts)
                self._made[key] = tuple(layer.tree for layer in found)
        return self._made[key]

    def _tool_layers(self, capabilities: Sequence[str], parts: Sequence[str]) -> tuple[Layer, ...]:
        store, base = self.store, self.base
        if self.compiler:
            return bases.ensure_builder_layers(store, base, capabilities, parts=parts, offline=self.offline)
        layer = bases.ensure_system_layer(store, base, frozenset(capabilities), offline=self.offline)
        return (layer,) if layer is not None else ()

    def _layers(self) -> tuple[Path, ...]:
        """The base and its interpreter."""
        bytecode = bases.ensure_bytecode_layer(self.store, self.base, offline=self.offline)
        own = ensure_runtime_layers(self.store, self.base, self.python, self.root, offline=self.offline)
        return (self.base.tree, bytecode.tree, *(layer.tree for layer in own))


@dataclass
class _Work:
    """One build: a directory of the host that the sandbox sees as ``/build``."""

    builder: SandboxBuilder
    artifact: Artifact
    directory: Path
    layers: tuple[Path, ...]
    said: str = ""
    capabilities: set[str] = field(default_factory=set)
    """Those of its build requirements that had to be built themselves."""

    def prepare(self, source: Path) -> bool:
        """Unpack the source and install what its build requires; whether it looks like more than C."""
        for name in ("requires", "out"):
            (self.directory / name).mkdir(parents=True)
        shutil.copy(HOOK, self.directory / "hook.py")
        if source.is_dir():
            ignore = None if self.builder.prepared else shutil.ignore_patterns(*_COPIED_NOT)
            shutil.copytree(source, self.directory / "source", symlinks=True, ignore=ignore)
            answer = self.ask("prepare")
        else:
            shutil.copy(source, self.directory / source.name)
            answer = self.ask("prepare", f"/build/{source.name}")
        self.install([*answer["requires"], *extra_requirements(self.builder.root, self.artifact.name)])
        return bool(answer["more"])

    def wheel(self, tools: tuple[Path, ...]) -> Path:
        """Build with these layers on top of the base's."""
        self.layers = (*self.layers, *tools)
        answer = self.ask("build", "wheel")
        if "requires" in answer:
            self.install(answer["requires"])
            answer = self.ask("wheel", "wheel")
        built = self.directory / "out" / str(answer["wheel"])
        if not built.is_file():
            raise PxError("PX903", problem=f"{self.artifact.label}: its build backend made no wheel")
        return built

    def try_wheel(self, tools: tuple[Path, ...]) -> Path | None:
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
        called = self.directory / "wanted"
        found = called.read_text(errors="replace").splitlines() if called.is_file() else []
        found += [match[0] for match in toolchain.MISSING.finditer(self.said)]
        if found:
            console.detail(f"{self.artifact.label} needs more than a C compiler: {', '.join(sorted(set(found)))}")
        return bool(found)

    def ask(self, *action: str) -> Any:
        log: list[bytes] = []
        spec = RunSpec(
            layers=self.layers,
            argv=(f"{self.builder.python.directory}/python3", "/build/hook.py", *action),
            env=self.environment(),
            cwd="/build",
            mounts=(Mount(self.directory, "/build"),),
            network=False,
            home="/tmp/home",  # noqa: S108 - inside the sandbox
            label=f"build-{self.artifact.name}",
        )
        from px.engines import engine

        with open(os.devnull, "rb") as nothing, tidy_end(), _interruptible():
            builder = engine("bubblewrap", self.builder.store.home)
            code = builder.run(spec, stdin=nothing.fileno(), stdout=log.append, stderr=log.append)
        text = b"".join(log).decode("utf-8", "replace")
        self.said += text
        for line in text.splitlines():
            console.debug(f"  {self.artifact.name}: {line}")
        if code != 0:
            raise self.failure(text)
        return json.loads((self.directory / "answer.json").read_bytes())

    def environment(self) -> dict[str, str]:
        uploaded = self.artifact.uploaded
        epoch = int(datetime.fromisoformat(uploaded).timestamp()) if uploaded else 315532800
        # Build tools ask PATH for the interpreter, and the base's own would be another one.
        own = f"{self.builder.python.directory}:" if self.builder.python.layer else ""
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
            **build_options(self.builder.root, self.artifact.name),
            **({"SETUPTOOLS_SCM_PRETEND_VERSION": self.artifact.version} if self.artifact.kind == "vcs" else {}),
        }

    def install(self, requirements: Sequence[str]) -> None:
        """Put build requirements beside the source; those without wheels are built like the package itself."""
        if not requirements:
            return
        target = ["--only-binary", ":all:", "--target", str(self.directory / "requires")]
        done = self.uv_pip("install", *target, "--", *requirements)
        if not done.ok and (names := without_wheels(done.stderr)) and not names & self.builder.within:
            made = self.build_requirements(as_asked(requirements, names), names)
            done = self.uv_pip("install", *target, "--", *requirements, *(str(wheel) for wheel in made))
        if not done.ok:
            raise self.uninstallable(done.stderr)
        use_interpreter(self.directory / "requires" / "bin", f"{self.builder.python.directory}/python3")

    def uv_pip(self, command: str, *args: str) -> Finished:
        """Run uv for the sandbox's platform and the day that counts, with the project's settings."""
        runtime = self.builder.python.runtime
        name, _, version = runtime.libc.partition("-")
        libc = "unknown-linux-musl"
        if name == "glibc":
            libc = f"manylinux_2_{min(int(version.rpartition('.')[2]), _NEWEST_GLIBC)}"
        flags = ["--python-version", runtime.version, "--python-platform", f"{runtime.machine}-{libc}"]
        as_of = self.builder._as_of(self.artifact)
        flags += ["--exclude-newer", as_of] if as_of else []
        if constraints := build_constraints(self.builder.root):
            (self.directory / "constraints").write_text("\n".join(constraints))
            flags += ["--constraint", str(self.directory / "constraints")]
        settings = settings_directory(self.builder.root, self.directory / "settings")
        return uv.uv("pip", command, "--quiet", *flags, *args, cwd=settings, offline=self.builder.offline)

    def build_requirements(self, requirements: Sequence[str], names: frozenset[str]) -> list[Path]:
        """Wheels of requirements that have none; their capabilities are there for this build too.

        uv only chooses the versions: without their dependencies, so that it need not build anything to know them.
        """
        builder = replace(self.builder, within=self.builder.within | {normalise(self.artifact.name)})
        asked = self.directory / "requires.in"
        asked.write_text("\n".join(requirements))
        flags = [flag for name in sorted(names) for flag in ("--no-binary", name)]
        done = self.uv_pip("compile", "--no-deps", *flags, "--format", "pylock.toml", str(asked))
        if not done.ok:
            raise self.uninstallable(done.stderr)
        return [self._build_requirement(builder, artifact) for artifact in sdists(done.stdout)]

    def _build_requirement(self, builder: SandboxBuilder, artifact: Artifact) -> Path:
        out = self.directory / "built" / artifact.name / "out"
        out.mkdir(parents=True)
        credentials = Credentials(discover(builder.root))
        fetched = Packages(builder.store, builder.root, credentials, builder, offline=builder.offline).fetch(artifact)
        named = out.parent / artifact.filename  # the store does not keep the name, which says what it is
        named.symlink_to(fetched)
        self.capabilities |= set(builder._needed(artifact))
        return builder.build(artifact, named, out)

    def uninstallable(self, complaint: str) -> PxError:
        problem = f"the build requirements of {self.artifact.label} cannot be installed"
        fix = ["Look after the network and the index, if that is what uv complains about, or use another version."]
        return PxError("PX903", problem=problem, why=[uv.explain(complaint)], fix=fix, whole_fix=True)

    def failure(self, log: str) -> PxError:
        have = frozenset(self.builder._needed(self.artifact))
        by_choice = from_source(self.builder.root, self.artifact.name)
        return build_failure(self.artifact.label, log, self.builder.base.name, have, by_choice=by_choice)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end px, and the build with it: passed on to the build, it would be one more way to fail."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    mine = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if mine:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _telling(log: str) -> list[str]:
    """The lines of a log that a person would look for: the first error of a compiler, and how it ended."""
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if _COMPILER.search(line)), None)
    if first is None or len(lines) - first <= 12:
        return lines[-12:]
    return [*lines[first : first + 6], "…", *lines[-6:]]


def build_failure(
    label: str, log: str, base: str, have: frozenset[str] = frozenset(), *, by_choice: bool = False
) -> PxError:
    """What a failed build's log says is missing, as an error with the command that brings it.

    A capability that the build had is no remedy: where the headers are there, they are too old or too new.
    ``by_choice``: the project wants it built, though it may have a wheel.
    """
    found = [s for s in patterns.match(log, base) if s.capability not in have]
    if not found:
        return _without_remedy(label, log, base, by_choice=by_choice)
    return patterns.missing_error(found, [f"Building {label} failed: {s.line.strip()}" for s in found[:3]])


def _without_remedy(label: str, log: str, base: str, *, by_choice: bool) -> PxError:
    name = label.partition(" ")[0]
    limits = patterns.limits(log)
    lacking = patterns.without_capability(log, base)
    known = [f"px has no capability that brings {lacking[0]}."] if lacking and not limits else []
    fix = ["Use a version of it that has a wheel for this Python and platform, or one that builds here."]
    if by_choice:
        fix.insert(0, f"Let px take its wheel, if it has one: take {name} out of [tool.uv].no-binary-package")
    if used := patterns.undeclared(log):
        tool, requirement = used
        known.append(f"It uses {tool}, which its build requirements do not bring.")
        fix.insert(0, f'Let its build have {tool}: [tool.uv.extra-build-dependencies] {name} = ["{requirement}"]')
    why = [*limits[:1], *known, "\n    ".join(_telling(log)) or "it said nothing"]
    if not limits:
        fix.append(
            f"Or another base, whose libraries are of other versions than those of {base}: [tool.px.sandbox].base"
        )
    fix.append("Read all that the build said: .px/logs/px.log")
    return PxError("PX903", problem=f"{label} could not be built", why=why, fix=fix, whole_fix=True)
