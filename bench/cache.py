"""A machine that has nothing, to the first run of an app: from the shared cache, without it, and with ``docker pull``.

The image that docker pulls is the one that px packs of the same app, and the registry is the same, on loopback.  The
app needs psycopg2 (published as source only), pillow, numpy and requests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from bench.bases import docker
from bench.pack import BIN, App
from bench.timing import Action, command, compare, table
from px.store.tree import remove_tree
from tests.integration.oci.registry_server import running_registry
from tests.support.dockerd import DockerEngine

ROUNDS = 3
WITH, WITHOUT, DOCKER = "px, with the cache", "px, without it", "docker pull and run"


class Machine:
    """px with a home that is new in every round."""

    def __init__(self, app: App, scratch: Path):
        self.app, self.scratch, self.homes = app, scratch, 0

    def environment(self, cache: str) -> dict[str, str]:
        home = str(self.scratch / f"home-{self.homes}")
        return {**os.environ, "PX_HOME": home, "PX_CACHE": cache, "UV_CACHE_DIR": f"{home}/uv"}

    def px(self, *args: str, cache: str) -> None:
        command([BIN / "px", *args], cwd=self.app.root, env=self.environment(cache))()

    def first_run(self, cache: str) -> Action:
        return lambda: self.px("run", "--sandbox", "shop", cache=cache)

    def fresh(self) -> None:
        self.homes += 1


def main() -> None:
    if shutil.which("docker-registry") is None:
        print("SKIPPED: docker-registry is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="px-bench-") as folder, docker() as engine:
        try:
            _measure(Path(folder), engine)
        finally:
            remove_tree(Path(folder, "px"))


def _measure(scratch: Path, engine: DockerEngine | None) -> None:
    machine = Machine(App(scratch / "shop"), scratch / "px")
    with running_registry(scratch / "registry") as registry:
        cache, image = f"{registry.host}/px-cache", f"{registry.host}/shop:1"
        machine.px("sync", "--sandbox", cache="")
        machine.px("cache", "push", cache=cache)
        machine.px("pack", "image", "--tag", image, "--push", cache="")
        contenders = {WITH: machine.first_run(cache), WITHOUT: machine.first_run("")}
        before: dict[str, Action] = {WITH: machine.fresh, WITHOUT: machine.fresh}
        if engine is not None:
            contenders[DOCKER] = lambda: engine.run("run", "--rm", "--pull", "always", image)
            before[DOCKER] = lambda: engine.run("rmi", "-f", image, check=False)
        results = compare(contenders, rounds=ROUNDS, before=before)
    table("From nothing to the first run", results, base=DOCKER if engine is not None else WITHOUT)
