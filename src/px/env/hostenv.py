"""The host env: a profile laid out as a virtual environment, hard-linked out of the store."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from px import console
from px.env.wheel import EntryPoint, read_entry_points
from px.store.files import disk_errors, write_json
from px.store.tree import Entry, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from px.env.profile import Profile
    from px.env.runtime import Interpreter
    from px.store.objects import Store

MARKER = "px-env.json"
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


def locate(
    store: Store, profile_oid: str, root: Path, interpreter: Interpreter, editable: Mapping[str, bytes]
) -> HostEnv:
    """The env's directory: one per profile; one per project where it holds the project's own absolute path."""
    parts = [LAYOUT, os.fspath(interpreter.executable)]
    if editable:
        parts += [
            os.fspath(root),
            *(f"{name}\0{hashlib.sha256(c).hexdigest()}" for name, c in sorted(editable.items())),
        ]
    suffix = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return HostEnv(store.home.envs / f"{profile_oid}-{suffix}", interpreter.runtime.python)


def ensure(
    store: Store, profile: Profile, root: Path, interpreter: Interpreter, editable: Mapping[str, bytes], *, force: bool
) -> HostEnv:
    """Build the env unless it is there: in a directory beside it, then by one rename."""
    env = locate(store, profile.oid, root, interpreter, editable)
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
            console.info(f"Built the env: {len(profile.packages)} packages in {time.monotonic() - started:.2f} s")
        finally:
            remove_tree(building)
    return env


class _Builder:
    """Lays one env out under ``building``; scripts name the final path."""

    def __init__(self, store: Store, profile: Profile, interpreter: Interpreter, env: HostEnv, building: Path):
        self.store = store
        self.profile = profile
        self.interpreter = interpreter
        self.env = env
        self.root = building
        self.site = profile.runtime.site_packages
        self.owner: dict[str, str] = {}
        self.scripts: dict[str, EntryPoint] = {}

    def build(self, editable: Mapping[str, bytes]) -> None:
        links, copies, directories = self._plan()
        self.root.mkdir(parents=True)
        for name in sorted(directories | {"bin", self.site}):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._link_all(links)
        for source, path in copies:
            self._copy_script(source, path)
        self._interpreter()
        self._editable(editable)
        for script in self.scripts.values():
            self._write(f"bin/{script.name}", script_text(self.env.bin / "python", script), executable=True)
        marker = {"profile": self.profile.oid, "python": os.fspath(self.interpreter.executable), "layout": LAYOUT}
        write_json(self.root / MARKER, marker, durable=False)

    def _plan(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]], set[str]]:
        """What to link, which scripts to copy, and the directories to make first."""
        links: list[tuple[str, str]] = []
        copies: list[tuple[str, str]] = []
        directories: set[str] = set()
        for package in self.profile.packages:
            payload = self.store.payload("pkg-build", package.oid)
            tree = os.fspath(self.store.tree("pkg-build", package.oid))
            for entry in cast("list[Entry]", payload["tree"]):
                placed = self._place(str(entry[1]))
                if placed is None:
                    continue
                if entry[0] == "d":
                    directories.add(placed)
                elif self._claim(placed, package.name):
                    pair = (f"{tree}/{entry[1]}", placed)
                    (copies if placed.startswith("bin/") else links).append(pair)
            for name, target, gui in cast("list[tuple[str, str, bool]]", payload["scripts"]):
                self.scripts[name] = EntryPoint(name, target, gui)
        return links, copies, directories

    def _place(self, path: str) -> str | None:
        top, _, rest = path.partition("/")
        if not rest:
            return None
        return {"lib": f"{self.site}/", "bin": "bin/", "data": "", "include": "include/"}[top] + rest

    def _claim(self, path: str, package: str) -> bool:
        first = self.owner.setdefault(path, package)
        if first != package:
            console.detail(f"{path}: both {first} and {package} install it; {first}'s is used")
        return first == package

    def _link_all(self, links: list[tuple[str, str]]) -> None:
        # link(2) spends its time in the kernel, where two threads do not wait for each other.
        half = (len(links) + 1) // 2
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._link, (links[:half], links[half:])))

    def _link(self, links: Iterable[tuple[str, str]]) -> None:
        base = os.fspath(self.root) + "/"
        for source, path in links:
            try:
                os.link(source, base + path, follow_symlinks=False)
            except OSError:
                self._copy(source, base + path)

    def _copy(self, source: str, destination: str) -> None:
        """Where a hard link cannot be made (another file system, too many links)."""
        import shutil

        shutil.copy2(source, destination, follow_symlinks=False)

    def _copy_script(self, source: str, path: str) -> None:
        content = Path(source).read_bytes()
        first, newline, rest = content.partition(b"\n")
        if first.startswith(b"#!python"):
            arguments = first.removeprefix(b"#!pythonw").removeprefix(b"#!python").strip()
            content = shebang(self.env.bin / "python", arguments.decode()).encode() + newline + rest
        self._write(path, content, executable=True)

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
        home = executable.resolve().parent
        lines = [f"home = {home}", "implementation = CPython", f"version_info = {self.profile.runtime.version}"]
        lines += ["include-system-site-packages = false", "px = true"]
        self._write("pyvenv.cfg", "\n".join(lines) + "\n")

    def _editable(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            self._write(f"{self.site}/{name}", content)
            if name.endswith(".dist-info/entry_points.txt"):
                for script in read_entry_points(content.decode()):
                    self.scripts[script.name] = script


def shebang(python: Path, arguments: str = "") -> str:
    """A first line that works also where the path has spaces or is too long for the kernel."""
    plain = f"#!{python}" + (f" {arguments}" if arguments else "")
    if " " not in os.fspath(python) and len(os.fsencode(plain)) <= 127:
        return plain
    command = " ".join(["'''exec'", shlex.quote(os.fspath(python)), *arguments.split(), '"$0"', '"$@"'])
    return f"#!/bin/sh\n{command}\n' '''"


def script_text(python: Path, script: EntryPoint) -> str:
    """The program for a console script: import, call, exit with what it returns."""
    module, _, attribute = script.target.partition(":")
    return (
        f"{shebang(python)}\n"
        "import sys\n"
        f"from {module.strip()} import {attribute.strip().split('.')[0]}\n"
        "if __name__ == '__main__':\n"
        f"    sys.exit({attribute.strip()}())\n"
    )
