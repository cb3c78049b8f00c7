"""Every attempt of attempts.py under bubblewrap, as root and as an ordinary user, and under docker's defaults.

``PX_UPDATE_DOCS=1`` writes what was seen into docs/explanation/isolation.md; without it the page must agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.integration.engines.conftest import Driver
from tests.integration.engines.conftest import box as _box
from tests.integration.engines.conftest import caller as _caller
from tests.integration.engines.conftest import layers as _layers
from tests.integration.probes.facts import prepared
from tests.support.dockerd import DockerEngine, running_docker
from tests.support.rootfs import tar

box, caller, layers = _box, _caller, _layers

PAGE = REPO / "docs/explanation/isolation.md"
BEGIN, END = "<!-- attempts: begin -->", "<!-- attempts: end -->"

# What a sandbox on a shared kernel shows, docker's as well.
SHARED = {
    "the kernel's version",
    "the machine's load and memory",
    "names of host directories in the list of mounts",
}
# What sharing the host's network means.
WITH_NETWORK = {"an abstract socket of the host", "a service on the host's loopback"}

Seen = dict[str, tuple[str, str, str]]


def under_px(box: Driver, *, network: bool) -> Seen:
    done = box.run("python3", "/app/attempts.py", "/app/facts.json", network=network)
    assert done.returncode == 0, done.stderr
    return {name: tuple(row) for name, row in json.loads(done.stdout).items()}


def open_ones(seen: Seen) -> dict[str, str]:
    return {name: detail for name, (_, result, detail) in seen.items() if result == "OPEN"}


@pytest.mark.parametrize("network", [False, True])
def test_under_bubblewrap(box: Driver, network: bool) -> None:
    with prepared(box):
        seen = under_px(box, network=network)
    assert len(seen) >= 90
    expected = SHARED | (WITH_NETWORK if network else set())
    assert set(open_ones(seen)) == expected, open_ones(seen)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerEngine]:
    with running_docker() as engine:
        yield engine


def under_docker(box: Driver, daemon: DockerEngine, archive: Path) -> Seen:
    tar(box.layers[0], archive)
    image = daemon.run("import", archive).stdout.strip()
    mount = f"{box.app}:/app"
    done = daemon.run("run", "--rm", "-v", mount, image, "/usr/bin/python3", "/app/attempts.py", "/app/facts.json")
    return {name: tuple(row) for name, row in json.loads(done.stdout).items()}


def test_beside_dockers_defaults_and_in_the_documentation(caller: Driver, daemon: DockerEngine, tmp_path: Path) -> None:
    with prepared(caller):
        off, on = under_px(caller, network=False), under_px(caller, network=True)
        dockers = under_docker(caller, daemon, tmp_path / "root.tar")
    # Nothing is open under px that docker's defaults close.
    assert set(open_ones(off)) <= set(open_ones(dockers))
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    written, _, tail = rest.partition(END)
    if os.environ.get("PX_UPDATE_DOCS"):
        PAGE.write_text(f"{head}{BEGIN}\n{table(off, on, dockers)}\n{END}{tail}")
        return
    # docker's column is what its version here did; ours must be what the page says.
    assert ours(written) == ours(table(off, on, dockers))


def table(off: Seen, on: Seen, dockers: Seen) -> str:
    lines = ["| attempt | px, network off | px, network on | docker's defaults |", "|---|---|---|---|"]
    group = ""
    for name, (here, result, _) in off.items():
        if here != group:
            group = here
            lines.append(f"| **{group}** | | | |")
        lines.append(f"| {name} | {result.lower()} | {on[name][1].lower()} | {dockers[name][1].lower()} |")
    return "\n".join(lines)


def ours(text: str) -> list[str]:
    return [line.rpartition("|")[0].rpartition("|")[0] for line in text.strip().splitlines()]
