"""uv for the sandbox runs in a sandbox: resolving may build a source distribution, and that is foreign code.

The box has the project's base and its Python, and none of this machine's.  The project lies in it where it lies here,
under a layer in memory: what is written there is gone afterwards, except for the lock and the manifests.  Those are
read back as foreign files, must be TOML, and then replace the old ones whole.

A build that uv starts sees what uv sees: the network, the project, and how the indexes are reached.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from px import console, foreign
from px.engines.bubblewrap import Bubblewrap
from px.errors import PxError
from px.platforms import host_architecture
from px.process import Finished, interruptible, tidy_end
from px.project.selection import Selection
from px.project.uv import Uv, doing
from px.sandbox import uv_places
from px.sandbox.layers.base import ensure_base, ensure_bytecode_layer, load_base_lock
from px.sandbox.layers.python import choose_python, ensure_runtime_layers
from px.sandbox.layers.system import ensure_builder_layers, ensure_system_layer
from px.sandbox.manifest import governing_manifest
from px.sandbox.uv_program import uv_program
from px.store.files import disk_errors, write_atomically
from px.store.locks import collection_off
from px.warm.places import below, hidden_in
from px.warm.record import record_name
from px.warm.spec import Mount, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.project.context import Context
    from px.sandbox.layers.python import Ground

LARGEST_LOCK = 256 << 20
_CACHE, _BACK = "/run/px/cache", "/run/px/back"
# meson, setuptools, and CMake, of a build that found no compiler.
_NO_COMPILER = re.compile(
    r"Unknown compiler\(s\)|[Cc]ommand '[\w./-]*(?:gcc|g\+\+|cc|c\+\+)' failed: No such file|CMAKE_CX*_COMPILER not set"
    r"|No CMAKE_CX*_COMPILER could be found"
)


@dataclass(frozen=True)
class SandboxUv(Uv):
    """uv for one project.  What only reads the lock runs here; what may run foreign code runs in the box."""

    context: Context | None = None

    def run(self, *args: str | Path) -> Finished:
        command, context = str(args[0]), self.context
        if context is None or command not in ("lock", "add", "remove"):
            return super().run(*args)
        problem = Bubblewrap(context.home).problem()
        if problem is not None:
            # Without bubblewrap, docker and podman still run sandboxes; what they lack is a way to read back from one.
            console.warn(f"uv resolves on this machine, and may run builds of packages here: {problem.reason}")
            return super().run(*args)
        project = context.project
        back = [] if "--check" in args else [project.lock]
        back += [m.path for m in project.manifests] if command != "lock" else []
        # The first that writes to px's home, when a command looks at a project before it builds.
        writable, collecting = disk_errors(context.home.root), collection_off(context.home)
        with writable, context.store.draft() as draft, _over(draft.path, context.root) as over, collecting:
            box = UvBox(_ground(context), f"project-{record_name(os.fspath(context.root)).removesuffix('.json')}")
            mounts = [_project(context, over), *uv_places.beside(context, args)]
            (draft.path / "back").mkdir()
            mounts.append(Mount(draft.path / "back", _BACK))
            capabilities = ["git"] if uv_places.ask_for_git(context, args) else []
            done = box.run(args, self.directory, mounts, back=back, capabilities=capabilities)
            if not done.ok and _NO_COMPILER.search(done.stderr):
                # meson-python compiles a whole project to say what it depends on; most others need no compiler here.
                said = governing_manifest(project.manifest.path)[0]
                wanted = [*capabilities, *said.enabled.union(*said.build.values())]
                done = box.run(args, self.directory, mounts, back=back, capabilities=wanted, compiler=True)
            if done.ok:
                _take_back(back, draft.path / "back")
        return done


@dataclass(frozen=True)
class UvBox:
    """A sandbox that has uv, and a cache of uv's that nothing on this machine uses."""

    ground: Ground
    cache: str
    """Which cache.  Boxes that run foreign code must not share one with others."""

    def run(
        self,
        args: Sequence[str | Path],
        directory: Path,
        mounts: Sequence[Mount],
        *,
        back: Sequence[Path] = (),
        capabilities: Sequence[str] = (),
        compiler: bool = False,
    ) -> Finished:
        """Run uv in ``directory``, a path in the box; files of ``back`` are left under ``/run/px/back``."""
        context, python = self.ground.context, self.ground.python
        flags = ["--color", "never", "--no-progress", *(["--offline"] if context.offline else [])]
        program, shown = uv_program(on_musl=self.ground.base.is_alpine)
        command = shlex.join([*program, *flags, *map(str, args)])
        # Copied even if uv failed; px looks at them only if it did not.  A build may have left a pipe there, or no end.
        copy = f"timeout 5 head -c {LARGEST_LOCK + 1} --"
        copies = [f"{copy} {shlex.quote(str(path))} >{_BACK}/{n} 2>/dev/null" for n, path in enumerate(back)]
        spec = RunSpec(
            layers=self._layers(capabilities, compiler=compiler),
            argv=("/bin/sh", "-c", "; ".join([command, "code=$?", *copies, "exit $code"])),
            env={**uv_places.environment(context), "UV_CACHE_DIR": _CACHE, "UV_PYTHON": python.program},
            cwd=os.fspath(directory),
            hidden=hidden_in(mounts, os.fspath(context.home.root)),
            mounts=(*shown, Mount(self._cache(), _CACHE), *uv_places.credentials(), *mounts),
            network=not context.offline,
            home="/tmp/home",  # noqa: S108 - inside the sandbox
            label="uv",
            extra_ca=uv_places.certificates(context),
        )
        out: list[bytes] = []
        said: list[bytes] = []
        console.debug(f"run in a sandbox: {console.redact(command)}")
        with open(os.devnull, "rb") as nothing, tidy_end(), interruptible(), console.waiting(doing(args)):
            code = Bubblewrap(context.home).run(spec, stdin=nothing.fileno(), stdout=out.append, stderr=said.append)
        return Finished(code, *(b"".join(chunks).decode("utf-8", "replace") for chunks in (out, said)))

    def _layers(self, capabilities: Sequence[str], *, compiler: bool) -> tuple[Path, ...]:
        store, base = self.ground.context.store, self.ground.base
        layers = [base, ensure_bytecode_layer(store, base), *ensure_runtime_layers(self.ground)]
        if compiler:
            layers += ensure_builder_layers(store, base, capabilities)
        elif system := ensure_system_layer(store, base, capabilities):
            layers.append(system)
        return tuple(layer.tree for layer in layers)

    def _cache(self) -> Path:
        directory = self.ground.context.home.cache("uv") / self.cache
        directory.mkdir(parents=True, exist_ok=True)
        os.utime(directory)  # garbage collection looks at the time
        return directory


def _ground(context: Context) -> Ground:
    manifest, _ = governing_manifest(context.project.manifest.path)
    try:
        lock = load_base_lock(manifest.base, host_architecture(), manifest.pins)
    except PxError:
        # The project's pins are not made yet, or not for this machine: uv must run, so that they can be.
        lock = load_base_lock(manifest.base, host_architecture())
    return choose_python(context, Selection(), ensure_base(context.store, lock))


@contextmanager
def _over(draft: Path, root: Path) -> Iterator[Path]:
    """A directory for what lies over the project; with px's home in the project it is elsewhere.

    The kernel makes no overlay of a directory and a part of it.
    """
    if below(os.path.realpath(draft), os.path.realpath(root)) is None:
        yield draft / "over"
        return
    with tempfile.TemporaryDirectory(prefix="px-over-") as made:
        yield Path(made)


def _project(context: Context, over: Path) -> Mount:
    """The project where it lies, under copies of what uv writes: they are this user's, whoever owns the project."""
    root = context.root
    if os.fspath(root) in uv_places.TAKEN:
        raise PxError("PX906", engine="bubblewrap", problem=f"a project cannot lie in {root}: the sandbox has its own")
    for path in (*(m.path for m in context.project.manifests), context.project.lock):
        if path.is_file() and path.is_relative_to(root):
            copy = over / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return Mount(root, os.fspath(root), over=over)


def _take_back(paths: Sequence[Path], directory: Path) -> None:
    """Replace what uv changed, all or none: every file is read and checked before the first is written."""
    changed: dict[Path, bytes] = {}
    for number, path in enumerate(paths):
        content = foreign.read(directory, str(number), LARGEST_LOCK)
        if path.is_file() and path.read_bytes() == content:
            continue
        try:
            empty = not tomllib.loads(content.decode())
        except (ValueError, RecursionError):
            empty = True
        if empty:
            raise PxError("PX101", lock=path.name, problem="what uv's sandbox left there is not TOML")
        changed[path] = content
    for path, content in changed.items():
        write_atomically(path, content, mode=path.stat().st_mode & 0o777 if path.is_file() else 0o644)
