"""Packing an app: px against ``docker build`` of a multi-stage uv Dockerfile, for the same lock, in one run.

The app needs psycopg2 (published as source only), pillow, numpy and requests.  Docker's base image is made here, by
mmdebstrap: Debian 12 with Python 3.11, apt and certificates, which is what ``python:3.11-slim`` is, because no
registry is asked for one.  Both sides have their base before the clock starts, unless a row says otherwise: docker as
an image, px because another project was packed on it.  Both download packages from the same index and mirror.

Every cold round has a home of its own, and nothing is removed before the end: where many files were just removed,
some file systems take long to make new ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.bases import command as run_quietly
from bench.bases import docker
from bench.timing import Action, Measured, command, compare
from px.debian.mirror import mirrors
from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import load_base_lock
from px.store.tree import remove_tree
from tests.support.dockerd import DockerEngine

BIN = Path(sys.executable).parent
ROUNDS = 5
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
MANIFEST = """\
[project]
name = "shop"
version = "1.0"
requires-python = ">=3.11,<3.12"
dependencies = ["psycopg2", "pillow", "numpy", "requests"]

[project.scripts]
shop = "shop:main"

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
"""
OTHER = MANIFEST.replace('"psycopg2", "pillow", "numpy", "requests"', "")
MODULE = "import numpy, PIL, psycopg2, requests\n\n\ndef main():\n    print('shop', psycopg2.__libpq_version__)\n"
DOCKERFILE = """\
FROM px-bench-base AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev libpq-dev
COPY --from=px-bench-uv /uv /bin/uv
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /app
COPY pyproject.toml uv.lock ./
RUN --mount=type=cache,target=/root/.cache/uv uv sync --frozen --no-dev --no-install-project
COPY . .
RUN --mount=type=cache,target=/root/.cache/uv uv sync --frozen --no-dev

FROM px-bench-base
RUN apt-get update && apt-get install -y --no-install-recommends libpq5 && rm -rf /var/lib/apt/lists/*
COPY --from=build /app /app
WORKDIR /app
USER 1000
ENV PATH=/app/.venv/bin:$PATH
ENTRYPOINT ["shop"]
"""


class App:
    """The app in a git repository, locked, with its Dockerfile."""

    def __init__(self, root: Path, manifest: str = MANIFEST):
        self.root, self.edits = root, 0
        (root / "src/shop").mkdir(parents=True)
        (root / "pyproject.toml").write_text(manifest)
        (root / "src/shop/__init__.py").write_text(MODULE)
        (root / "Dockerfile").write_text(DOCKERFILE)
        (root / ".dockerignore").write_text(".git\n.px\n.venv\n")
        run_quietly([str(BIN / "uv"), "lock", "--quiet"], cwd=root)
        self.git("init", "-q")
        self.commit()

    def git(self, *args: str) -> None:
        run_quietly(["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", *args], cwd=self.root)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "bench")

    def edit(self) -> None:
        """Change a line of code and commit it."""
        self.edits += 1
        (self.root / "src/shop/__init__.py").write_text(f"{MODULE}\n# edit {self.edits}\n")
        self.commit()


class Px:
    """px with a home of its own, a new one for every cold round."""

    def __init__(self, app: App, other: App, scratch: Path):
        self.app, self.other, self.scratch, self.out = app, other, scratch, scratch / "px.tar"
        self.homes = 0
        self.fresh()

    def fresh(self) -> None:
        """Nothing here but px."""
        self.homes += 1
        self.home = Home(self.scratch / f"home-{self.homes}")
        self.env = {**os.environ, "PX_HOME": str(self.home.root), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def run(self, *args: str | Path, app: App | None = None) -> None:
        command([BIN / "px", *args], cwd=(app or self.app).root, env=self.env)()

    def action(self, *args: str | Path) -> Action:
        return lambda: self.run(*args)

    def all(self) -> None:
        self.run("sync", "--sandbox")
        self.run("pack", "image", "--out", self.out)

    def fresh_with_the_base(self) -> None:
        """What docker has before its first build: a base image; here because of a project without dependencies."""
        self.fresh()
        self.run("sync", "--sandbox", app=self.other)
        self.run("pack", "image", app=self.other)
        os.sync()

    def hide_what_was_made_of_packages(self) -> None:
        """A machine that has seen other projects: base and compiler are there, this project's packages are not."""
        for place in (self.home.objects, self.home.index):
            for kind in ("pkg-build", "profile"):
                self._hide(place / kind)
        self.hide_blobs()
        for place in (self.home.root / "sandbox" / "images", self.home.refs):
            self._hide(place)

    def hide_blobs(self) -> None:
        self._hide(self.home.sandbox / "blobs")

    def _hide(self, place: Path) -> None:
        if place.exists():
            self.homes += 1
            place.rename(self.scratch / f"hidden-{self.homes}")

    def compressed(self) -> int:
        done = subprocess.run(
            [BIN / "px", "pack", "image", "--json"], cwd=self.app.root, env=self.env, capture_output=True, check=True
        )
        return int(json.loads(done.stdout)["details"]["images"][0]["size"])


class Docker:
    """``docker build`` in an engine of its own."""

    def __init__(self, app: App, scratch: Path, engine: DockerEngine):
        self.app, self.out = app, scratch / "docker.tar"
        self.program, self.env = engine.client, {**engine.environment, "DOCKER_BUILDKIT": "1"}
        self._base(scratch)

    def _base(self, scratch: Path) -> None:
        lock = load_base_lock("debian-12", host_architecture())
        mirror = mirrors(lock.date)[0]
        suites = [lock.codename + pocket for pocket in ("", "-updates", "-security")]
        listing = scratch / "sources.list"
        listing.write_text("".join(f"deb {mirror.archive(suite)} {suite} main\n" for suite in suites))
        tree, files = scratch / "base.tar", scratch / "uv-image"
        options = ["--quiet", "--variant=minbase", "--include=ca-certificates,python3"]
        # The machine's own certificates, which may be more than Debian's.
        options.append(f"--customize-hook=copy-in {BUNDLE} /etc/ssl/certs")
        run_quietly(["mmdebstrap", *options, lock.codename, str(tree), str(listing)])
        change = ["--change", f"ENV SSL_CERT_FILE={BUNDLE}"]
        run_quietly([self.program, "import", *change, str(tree), "px-bench-base"], env=self.env)
        files.mkdir()
        shutil.copy2(BIN / "uv", files / "uv")
        run_quietly(["tar", "-C", str(files), "-cf", str(scratch / "uv.tar"), "uv"])
        run_quietly([self.program, "import", str(scratch / "uv.tar"), "px-bench-uv"], env=self.env)

    def build(self) -> None:
        args = [self.program, "build", "--network=host", "-q", "-t", "shop", "."]
        command(args, cwd=self.app.root, env=self.env)()

    def build_and_save(self) -> None:
        self.build()
        command([self.program, "save", "-o", str(self.out), "shop"], cwd=self.app.root, env=self.env)()

    def forget(self) -> None:
        command([self.program, "builder", "prune", "-af"], cwd=self.app.root, env=self.env)()

    def size(self, name: str) -> int:
        args = [self.program, "image", "inspect", "--format", "{{.Size}}", name]
        return int(subprocess.run(args, env=self.env, capture_output=True, check=True).stdout)

    def run(self, name: str) -> str:
        args = [self.program, "run", "--rm", "--network=none", name]
        return subprocess.run(args, env=self.env, capture_output=True, text=True, check=True).stdout


def show(title: str, rows: list[Measured], aim: str = "") -> None:
    """Medians, and how much longer each takes than the first row."""
    print(f"\n{title}{f'  (aim: {aim})' if aim else ''}")
    for row in rows:
        ratio = f"{row.median / rows[0].median:7.1f} x" if row is not rows[0] else ""
        print(f"  {row.name:<52}{row.median:8.2f} s{ratio}", flush=True)


def measure(px: Px, peer: Docker | None) -> None:
    app = px.app
    rows = compare({"px: nothing here but px": px.all}, rounds=1, before={"px: nothing here but px": px.fresh})
    contenders: dict[str, Action] = {"px: sync --sandbox and pack image --out": px.all}
    before: dict[str, Action] = {"px: sync --sandbox and pack image --out": px.fresh_with_the_base}
    if peer:
        contenders |= {"docker build": peer.build}
        before |= {"docker build": peer.forget}
    show("cold, the base is there", compare(contenders, rounds=2, before=before), "docker takes 8 x as long")
    show("cold, nothing is there", rows)
    more = {"px: base, compiler and downloads are there": px.all}
    show(
        "a machine that has built others",
        compare(more, rounds=2, before=dict.fromkeys(more, px.hide_what_was_made_of_packages)),
    )
    first = {"px pack image --out": px.action("pack", "image", "--out", px.out)}
    show("the first image after a sync", compare(first, rounds=2, before=dict.fromkeys(first, px.hide_blobs)))

    pack, out = px.action("pack", "image"), px.action("pack", "image", "--out", px.out)
    edited: dict[str, Action] = {"px pack image": pack} | ({"docker build": peer.build} if peer else {})
    results = compare(edited, rounds=ROUNDS, before=dict.fromkeys(edited, app.edit))
    show("a line of code was edited", results, "docker is not faster")
    filed: dict[str, Action] = {"px pack image --out x.tar": out}
    filed |= {"docker build + docker save": peer.build_and_save} if peer else {}
    results = compare(filed, rounds=ROUNDS, before=dict.fromkeys(filed, app.edit))
    show("a line of code was edited, the image as a file", results, "docker takes 5 x as long")
    show("nothing changed", compare(edited, rounds=ROUNDS))


def sizes(px: Px, peer: Docker) -> None:
    """Both images in the same engine, by the same count; and whether they do the same."""
    px.action("pack", "image", "--tag", "px.example.org/shop:1", "--out", px.out)()
    command([peer.program, "load", "-q", "-i", str(px.out)], cwd=px.app.root, env=peer.env)()
    ours, theirs = peer.size("px.example.org/shop:1"), peer.size("shop")
    print("\nimage size, as the engine counts it  (aim: at most half)")
    print(f"  {'px':<52}{ours / 1e6:8.1f} MB  ({px.compressed() / 1e6:.1f} MB to pull)")
    print(f"  {'docker build':<52}{theirs / 1e6:8.1f} MB{theirs / ours:7.1f} x")
    print(f"\nthey say: {peer.run('px.example.org/shop:1').strip()!r} and {peer.run('shop').strip()!r}")


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="px-bench-pack-"))
    try:
        app = App(scratch / "app")
        px = Px(app, App(scratch / "other", OTHER), scratch)
        if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
            print("SKIPPED docker build: its base image is made by mmdebstrap, as root; px alone:")
            measure(px, None)
            return
        with docker() as engine:
            peer = Docker(app, scratch, engine) if engine else None
            measure(px, peer)
            if peer:
                sizes(px, peer)
    finally:
        remove_tree(scratch)


if __name__ == "__main__":
    main()
