"""One build in the builder sandbox: a directory of the host that the sandbox sees as ``/build``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from px import console
from px.debian import toolchain
from px.engines.bubblewrap import Bubblewrap
from px.env.packages import Packages
from px.errors import PxError
from px.process import tidy_end
from px.project import uv
from px.sandbox.build.failures import build_failure
from px.sandbox.build.requirements import as_asked, sdists, settings_directory, use_interpreter, without_wheels
from px.warm.spec import Mount, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.env.artifacts import Artifact
    from px.process import Finished
    from px.sandbox.build.builder import SandboxBuilder
    from px.sandbox.layers.python import SandboxPython

HOOK = Path(__file__).parent / "hook.py"
# Newer setuptools take these instead of what the interpreter was built with, so they must say all that matters;
# -g0 because debug information, which Debian's python asks for, is ten times the size of the code.
_FLAGS = "-O2 -DNDEBUG -fwrapv -fstack-protector-strong -g0"
_NEWEST_GLIBC = 40  # 2.40, of those that uv knows as platforms; wheels for an older one work with a newer
_COPIED_NOT = (".git", ".hg", ".px", ".venv", "__pycache__", "node_modules", "*.egg-info", ".tox", ".nox")


@dataclass
class Work:
    """One build: a directory of the host that the sandbox sees as ``/build``."""

    builder: SandboxBuilder
    artifact: Artifact
    directory: Path
    layers: tuple[Path, ...]
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
        shutil.copy(HOOK, self.directory / "hook.py")
        if source.is_dir():
            ignore = None if self.builder.prepared else shutil.ignore_patterns(*_COPIED_NOT)
            shutil.copytree(source, self.directory / "source", symlinks=True, ignore=ignore)
            answer = self.ask("prepare")
        else:
            shutil.copy(source, self.directory / source.name)
            answer = self.ask("prepare", f"/build/{source.name}")
        self.install([*answer["requires"], *self.builder.settings.extra_requirements(self.artifact.name)])
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
            argv=(f"{self.python.directory}/python3", "/build/hook.py", *action),
            env=self.environment(),
            cwd="/build",
            mounts=(Mount(self.directory, "/build"),),
            network=False,
            home="/tmp/home",  # noqa: S108 - inside the sandbox
            label=f"build-{self.artifact.name}",
        )
        with open(os.devnull, "rb") as nothing, tidy_end(), _interruptible():
            engine = Bubblewrap(self.builder.store.home)
            code = engine.run(spec, stdin=nothing.fileno(), stdout=log.append, stderr=log.append)
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
        target = ["--only-binary", ":all:", "--target", str(self.directory / "requires")]
        done = self.uv_pip("install", *target, "--", *requirements)
        if not done.ok and (names := without_wheels(done.stderr)) and not names & self.builder.within:
            made = self.build_requirements(as_asked(requirements, names), names)
            done = self.uv_pip("install", *target, "--", *requirements, *(str(wheel) for wheel in made))
        if not done.ok:
            raise self.uninstallable(done.stderr)
        use_interpreter(self.directory / "requires" / "bin", f"{self.python.directory}/python3")

    def uv_pip(self, command: str, *args: str) -> Finished:
        """Run uv for the sandbox's platform and the day that counts, with the project's settings."""
        builder, runtime = self.builder, self.python.runtime
        name, _, version = runtime.libc.partition("-")
        libc = "unknown-linux-musl"
        if name == "glibc":
            libc = f"manylinux_2_{min(int(version.rpartition('.')[2]), _NEWEST_GLIBC)}"
        flags = ["--python-version", runtime.version, "--python-platform", f"{runtime.machine}-{libc}"]
        as_of = builder.as_of(self.artifact)
        flags += ["--exclude-newer", as_of] if as_of else []
        if constraints := builder.settings.build_constraints:
            (self.directory / "constraints").write_text("\n".join(constraints))
            flags += ["--constraint", str(self.directory / "constraints")]
        directory = settings_directory(builder.settings, self.directory / "settings")
        return uv.Uv(directory, builder.store.offline).run("pip", command, "--quiet", *flags, *args)

    def build_requirements(self, requirements: Sequence[str], names: frozenset[str]) -> list[Path]:
        """Wheels of requirements that have none; their capabilities are there for this build too.

        uv only chooses the versions: without their dependencies, so that it need not build anything to know them.
        """
        builder = replace(self.builder, within=self.builder.within | {canonicalize_name(self.artifact.name)})
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
        fetched = Packages(builder.ground.context, builder).fetch(artifact)
        named = out.parent / artifact.filename  # the store does not keep the name, which says what it is
        named.symlink_to(fetched)
        self.capabilities |= set(builder.needed(artifact))
        return builder.build(artifact, named, out)

    def uninstallable(self, complaint: str) -> PxError:
        problem = f"the build requirements of {self.artifact.label} cannot be installed"
        fix = ["Look after the network and the index, if that is what uv complains about, or use another version."]
        return PxError("PX903", problem=problem, why=[uv.explain(complaint)], fix=fix, whole_fix=True)

    def failure(self, log: str) -> PxError:
        have = frozenset(self.builder.needed(self.artifact))
        by_choice = self.builder.settings.from_source(self.artifact.name)
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
