"""``px run --sandbox`` against bare bubblewrap on the same layers, ``docker run`` and ``podman run``.

Every contender runs ``python -c pass`` in the sandbox of one small project, whose first sync, from an empty store, is
measured too.  docker gets a daemon of its own; what cannot run here is left out, and says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.bases import docker
from bench.timing import Action, command, compare, table
from px.engines.bubblewrap import Bubblewrap
from px.engines.podman import Podman
from px.engines.session import Session
from px.home import Home
from px.store.tree import remove_tree
from px.warm.spec import RunSpec
from tests.support.dockerd import DockerEngine

BIN = Path(sys.executable).parent
ROUNDS = 30
PYTHON = "/opt/px/env/bin/python"
TARGET = (PYTHON, "-c", "pass")
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/px"}
MANIFEST = """\
[project]
name = "bench"
version = "1"
requires-python = ">=3.11,<3.12"
dependencies = ["requests"]
"""


class Project:
    """A small project with its sandbox, in a store of its own."""

    def __init__(self, scratch: Path):
        self.root, self.home = scratch / "project", Home(scratch / "home")
        self.env = {**os.environ, "PX_HOME": str(self.home.root), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.root.mkdir()
        (self.root / "pyproject.toml").write_text(MANIFEST)
        self.px("sync", "--sandbox")()
        self.px("run", "--sandbox", "python", "-c", "pass")()
        [record] = self.home.refs.glob("*.json")
        self.layers = tuple(json.loads(record.read_text())["envs"]["sandbox"]["layers"])

    def px(self, *args: str) -> Action:
        return command([BIN / "px", *args], cwd=self.root, env=self.env)


def bare(binary: str, project: Project) -> list[str]:
    """The least that gives a target these layers as its root and the project in it."""
    overlay = [option for layer in project.layers for option in ("--overlay-src", layer)]
    return [
        binary, "--unshare-all", "--share-net", "--uid", "1000", "--gid", "1000", *overlay, "--tmp-overlay", "/",
        "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", str(project.root), "/app",
        "--chdir", "/app", "--", *TARGET,
    ]  # fmt: skip


def contenders(project: Project, session: Session) -> dict[str, Action]:
    engine = Bubblewrap(project.home)
    spec = RunSpec(project.layers, TARGET, ENV, cwd="/")
    return {
        "bare bubblewrap": command(bare(engine.binary, project), cwd=project.root, env=os.environ),
        "px run --sandbox": project.px("run", "--sandbox", "python", "-c", "pass"),
        "px's engine, within a process": lambda: engine.run(spec),
        "Python's start alone": command([sys.executable, "-c", "pass"], cwd=project.root, env=os.environ),
        "command in a session": lambda: session.exec(TARGET).communicate(),
    }


def containers(project: Project, engine: DockerEngine | None) -> dict[str, Action]:
    """The same image by docker and podman: packed and loaded by px, run by their own clients."""
    found: dict[str, Action] = {}
    if engine is not None:
        found["docker run"] = _container(project, engine.client, engine.environment)
    podman = Podman()
    problem = podman.problem()
    if problem is None:
        found["podman run"] = _container(project, "podman", dict(os.environ), *podman.special())
    else:
        print(f"podman run: left out: {problem.reason}")
    return found


def _container(project: Project, program: str, env: dict[str, str], *options: str) -> Action:
    archive = project.home.root / "image.tar"
    pack = ["pack", "image", "--allow-dirty", "--tag", "px.example.org/bench:1", "--out", str(archive)]
    project.px(*pack)()
    subprocess.run([program, "load", "-q", "-i", archive], env=env, check=True, stdout=subprocess.DEVNULL)
    argv = [program, "run", "--rm", "--network", "none", *options, "--entrypoint", PYTHON, "px.example.org/bench:1"]
    return command([*argv, "-c", "pass"], cwd=project.root, env=env)


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="px-bench-engines-"))
    try:
        started = time.perf_counter()
        project = Project(scratch)
        print(f"from an empty store to the end of the first run: {time.perf_counter() - started:.1f} s")
        with ExitStack() as stack:
            engine = stack.enter_context(docker())
            spec = RunSpec(project.layers, TARGET, ENV, cwd="/")
            session = stack.enter_context(Session(Bubblewrap(project.home), spec))
            everyone = {**contenders(project, session), **containers(project, engine)}
            compare(everyone, rounds=2)
            table("python -c pass in debian-12 (aims: px at most 3 x bare bubblewrap, docker run at least 4 x px)",
                  compare(everyone, rounds=ROUNDS), base="bare bubblewrap")  # fmt: skip
    finally:
        remove_tree(scratch)
