"""The host env: a profile laid out as a virtual environment, hard-linked out of the store."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px import console
from px.env.layout import MARKER, Placed, entry_point_script, lay_out, pyvenv_cfg, read_own_entry_points, script_content
from px.store.files import disk_errors, write_json
from px.store.tree import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from px.env.profile import Profile
    from px.env.runtime import HostPython
    from px.project.context import Context
    from px.store.objects import Store

LAYOUT = 1


@dataclass(frozen=True)
class HostEnv:
    """Where an env is, or will be."""

    path: Path
    python: str

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    @property
    def whole(self) -> bool:
        """The marker is written last, and the interpreter that the env points to must still be there."""
        return (self.path / MARKER).is_file() and (self.bin / "python").exists()


def locate(context: Context, profile_oid: str, interpreter: HostPython, editable: Mapping[str, bytes]) -> HostEnv:
    """The env's directory: one per profile; one per project where it holds the project's own absolute path."""
    parts = [LAYOUT, os.fspath(interpreter.executable)]
    if editable:
        parts += [
            os.fspath(context.root),
            *(f"{name}\0{hashlib.sha256(c).hexdigest()}" for name, c in sorted(editable.items())),
        ]
    suffix = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return HostEnv(context.home.envs / f"{profile_oid}-{suffix}", interpreter.runtime.python)


def ensure(
    context: Context, profile: Profile, interpreter: HostPython, editable: Mapping[str, bytes], *, force: bool
) -> HostEnv:
    """Build the env unless it is there: in a directory beside it, then by one rename."""
    store, env = context.store, locate(context, profile.oid, interpreter, editable)
    if env.whole and not force:
        return env
    with disk_errors(store.home.root), store.lock(f"env-{env.path.name}", "this env"):
        if env.whole and not force:
            return env
        building = env.path.with_name(f".{env.path.name}.{os.getpid()}")
        try:
            started = time.monotonic()
            _Builder(store, profile, interpreter, env, building).build(editable)
            if env.path.exists():
                # A running process keeps its open files; the old directory goes once the new one is complete.
                old = building.with_name(building.name + ".old")
                env.path.rename(old)
                building.rename(env.path)
                remove_tree(old)
            else:
                building.rename(env.path)
            count = console.counted(len(profile.packages), "package")
            console.info(f"Built the env: {count} in {console.duration(time.monotonic() - started)}")
        finally:
            remove_tree(building)
    return env


class _Builder:
    """Lays one env out under ``building``; scripts name the final path."""

    def __init__(self, store: Store, profile: Profile, interpreter: HostPython, env: HostEnv, building: Path):
        self.profile = profile
        self.interpreter = interpreter
        self.python = os.fspath(env.bin / "python")
        self.root = building
        self.site = profile.runtime.site_packages
        self.layout = lay_out(store, profile.packages, self.site)

    def build(self, editable: Mapping[str, bytes]) -> None:
        self.root.mkdir(parents=True)
        for name in sorted(self.layout.directories | {"bin", self.site}):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        # A link in bin stays a link: it may lead to a file that has another place in the store than in an env.
        scripts = [f for f in self.layout.files if f.path.startswith("bin/") and f.entry[0] != "l"]
        self._link_all([f for f in self.layout.files if not f.path.startswith("bin/") or f.entry[0] == "l"])
        for file in scripts:
            content = (file.source / str(file.entry[1])).read_bytes()
            self._write(file.path, script_content(content, self.python), executable=True)
        self._interpreter()
        self._editable(editable)
        for script in self.layout.scripts.values():
            self._write(f"bin/{script.name}", entry_point_script(self.python, script), executable=True)
        marker = {
            "profile": self.profile.oid,
            "python": os.fspath(self.interpreter.executable),
            "layout": LAYOUT,
            "objects": [f"profile/{self.profile.oid}"],
        }
        write_json(self.root / MARKER, marker, durable=False)

    def _link_all(self, files: list[Placed]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        # link(2) spends its time in the kernel, where two threads do not wait for each other.
        half = (len(files) + 1) // 2
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._link, (files[:half], files[half:])))

    def _link(self, files: Iterable[Placed]) -> None:
        base = os.fspath(self.root) + "/"
        for file in files:
            source = f"{file.source}/{file.entry[1]}"
            try:
                os.link(source, base + file.path, follow_symlinks=False)
            except OSError:
                # Another file system, or more links than it allows.
                import shutil

                shutil.copy2(source, base + file.path, follow_symlinks=False)

    def _write(self, path: str, content: bytes | str, *, executable: bool = False) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        target.chmod(0o755 if executable else 0o644)

    def _interpreter(self) -> None:
        executable = self.interpreter.executable
        names = ("python", "python3", self.profile.runtime.python)
        for name in names:
            (self.root / "bin" / name).unlink(missing_ok=True)
        (self.root / "bin" / "python").symlink_to(executable)
        for name in names[1:]:
            (self.root / "bin" / name).symlink_to("python")
        (self.root / "lib64").symlink_to("lib")
        home = os.fspath(executable.resolve().parent)
        self._write("pyvenv.cfg", pyvenv_cfg(home, self.profile.runtime.version))

    def _editable(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            if name.startswith("bin/"):
                self._write(name, script_content(content, self.python), executable=True)
                continue
            self._write(f"{self.site}/{name}", content)
            if name.endswith(".dist-info/entry_points.txt"):
                project = name.partition("-")[0]
                for script in read_own_entry_points(project, self.root, content.decode("utf-8", "replace")):
                    self.layout.scripts[script.name] = script
