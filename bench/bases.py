"""Bases side by side: px, mmdebstrap, and ``docker build`` with apt, for the same packages, in one run.

Every px measurement is a process of its own, with its start-up, in a store that has only what the row says.
What cannot run here is skipped, and says so.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from px.debian.download import ensure_packages
from px.debian.mirror import mirrors
from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import ensure_base, load_base_lock
from px.store.objects import Store
from px.store.tree import remove_tree
from tests.support.dockerd import CannotStartError, DockerEngine, docker_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BASE = "debian-12"
CAPABILITIES = ("postgres", "imagecodecs", "curl")
REPEAT = 3
"""How often each row is measured; the median counts."""
FLOOR = 1.3
"""Seconds: what a throw-away prototype needed for a base from cached packages on 2 cores."""

PX = """
import sys
from pathlib import Path
from px.home import Home
from px.platforms import host_architecture
from px.sandbox.layers.base import ensure_base, ensure_bytecode_layer
from px.sandbox.layers.base import load_base_lock
from px.sandbox.layers.system import ensure_system_layer
from px.store.objects import Store
from px import console
console.configure(level=console.QUIET, color=False)
store = Store(Home(Path(sys.argv[1])))
base = ensure_base(store, load_base_lock(sys.argv[2], host_architecture()))
if "bytecode" in sys.argv:
    ensure_bytecode_layer(store, base)
wanted = [name for name in sys.argv[3:] if name != "bytecode"]
if wanted:
    ensure_system_layer(store, base, wanted)
"""
DOCKERFILE = """FROM px-bench-base
RUN apt-get update && apt-get install -y --no-install-recommends {packages} && rm -rf /var/lib/apt/lists/*
"""


class Bench:
    """One run: a scratch directory, a store with all downloads, and the rows so far."""

    def __init__(self, scratch: Path):
        self.scratch, self.homes = scratch, 0
        self.lock = load_base_lock(BASE, host_architecture())
        self.rows: dict[str, float] = {}
        self.sources = scratch / "downloads"
        names = {n for c in CAPABILITIES for n in self.lock.capabilities[c].runtime}
        ensure_packages(Store(Home(self.sources)), self.lock, self.lock.pinned({*self.lock.base, *names}))

    def measure(self, label: str, run: Callable[[Path], None], prepare: Callable[[Path], None]) -> None:
        times = []
        for _ in range(REPEAT):
            self.homes += 1  # kept to the end: a file system may be slow at making files where many were just removed
            home = self.scratch / f"run-{self.homes}"
            prepare(home)
            os.sync()  # what was prepared must not be written out on the clock
            started = time.perf_counter()
            run(home)
            times.append(time.perf_counter() - started)
        self.rows[label] = statistics.median(times)
        print(f"{label:<58} {self.rows[label]:7.2f} s   ({', '.join(f'{t:.2f}' for t in times)})", flush=True)

    def px(self, *arguments: str) -> Callable[[Path], None]:
        return lambda home: command([sys.executable, "-c", PX, str(home), BASE, *arguments])

    def nothing(self, home: Path) -> None:
        home.mkdir()

    def downloads(self, home: Path) -> None:
        command(["cp", "-a", str(self.sources), str(home)])

    def base(self, home: Path) -> None:
        """A store that has the base, and no package of the capabilities."""
        store = Store(Home(home))
        self.downloads(home)
        ensure_base(store, self.lock)
        remove_tree(home / "store" / "objects" / "source")

    def base_and_downloads(self, home: Path) -> None:
        self.downloads(home)
        ensure_base(Store(Home(home)), self.lock)


def command(argv: Sequence[str], **options: object) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv[:6])} … failed:\n{done.stderr[-2000:]}")


def measure_px(bench: Bench) -> None:
    bench.measure("px: base from cached .debs", bench.px(), bench.downloads)
    bench.measure("px: base from cached .debs, with compiled modules", bench.px("bytecode"), bench.downloads)
    bench.measure("px: base from the mirror", bench.px(), bench.nothing)
    bench.measure("px: postgres, mirror (one capability more)", bench.px("postgres"), bench.base)
    bench.measure("px: three capabilities, cached", bench.px(*CAPABILITIES), bench.base_and_downloads)
    bench.measure("px: three capabilities, mirror", bench.px(*CAPABILITIES), bench.base)
    bench.measure("px: base there already", bench.px(), bench.base_and_downloads)


def sources_list(bench: Bench) -> str:
    mirror = mirrors(bench.lock.date)[0]
    suites = [bench.lock.codename + pocket for pocket in ("", "-updates", "-security")]
    return "".join(f"deb {mirror.archive(suite)} {suite} main\n" for suite in suites)


def measure_mmdebstrap(bench: Bench) -> bool:
    if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
        print("SKIPPED mmdebstrap: needs root and the package mmdebstrap")
        return False
    listing = bench.scratch / "sources.list"
    listing.write_text(sources_list(bench))
    names = ",".join([*bench.lock.base, "dpkg", "debconf", "perl-base", "openssl", "login", "passwd"])

    def run(home: Path) -> None:
        options = ["--quiet", "--variant=custom", f"--include={names}"]
        command(["mmdebstrap", *options, bench.lock.codename, str(home / "root.tar"), str(listing)])

    bench.measure("mmdebstrap: the same packages, mirror", run, bench.nothing)
    return True


@contextmanager
def docker() -> Iterator[DockerEngine | None]:
    """A dockerd of our own, or None with the reason printed."""
    with ExitStack() as stack:
        try:
            engine = stack.enter_context(docker_engine())
        except CannotStartError as e:
            print(f"SKIPPED docker: {e}")
            engine = None
        yield engine


def measure_docker(bench: Bench) -> None:
    """A minimal Debian as the image to start from (no registry is needed), then apt in a Dockerfile."""
    tree = bench.scratch / "minbase.tar"
    options = ["--quiet", "--variant=minbase", "--include=ca-certificates,python3"]
    command(["mmdebstrap", *options, bench.lock.codename, str(tree), str(bench.scratch / "sources.list")])
    with docker() as engine:
        if engine is None:
            return
        engine.run("import", tree, "px-bench-base")

        def build(*capabilities: str) -> Callable[[Path], None]:
            names = {n for c in capabilities for n in bench.lock.capabilities[c].runtime}

            def run(home: Path) -> None:
                (home / "Dockerfile").write_text(DOCKERFILE.format(packages=" ".join(sorted(names))))
                engine.run("build", "--no-cache", "--network=host", "-q", home)

            return run

        bench.measure("docker build with apt: postgres", build("postgres"), bench.nothing)
        bench.measure("docker build with apt: three capabilities", build(*CAPABILITIES), bench.nothing)


RATIOS = (
    (
        "mmdebstrap / px: the base's packages from the mirror",
        "mmdebstrap: the same packages",
        "px: base from the mirror",
    ),
    ("docker build with apt / px: postgres from the mirror", "docker build with apt: postgres", "px: postgres, mirror"),
    (
        "docker build with apt / px: three from the mirror",
        "docker build with apt: three",
        "px: three capabilities, mirror",
    ),
    (
        "docker build with apt / px: three, .debs cached",
        "docker build with apt: three",
        "px: three capabilities, cached",
    ),
)


def ratios(rows: dict[str, float]) -> None:
    cached = rows["px: base from cached .debs"]
    print("\nRatios of this run:")
    print(f"  {'px: base from cached .debs / the floor (aim: at most 2)':<58} {cached / FLOOR:6.2f}")
    for label, theirs, ours in RATIOS:
        found = [next((t for name, t in rows.items() if name.startswith(key)), None) for key in (theirs, ours)]
        if found[0] is not None and found[1] is not None:
            print(f"  {label:<58} {found[0] / found[1]:6.1f}")


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="px-bench-bases-"))
    try:
        bench = Bench(scratch)
        measure_px(bench)
        if measure_mmdebstrap(bench):
            measure_docker(bench)
        else:
            print("SKIPPED docker build: its base image is made by mmdebstrap")
        ratios(bench.rows)
    finally:
        remove_tree(scratch)
