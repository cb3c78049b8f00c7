"""Every attempt of attempts.py under bubblewrap, as root and as an ordinary user, and under docker's defaults.

``PX_UPDATE_DOCS=1`` writes what was seen into docs/explanation/isolation.md; without it the page must agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from px.workflow.doctor import LANDLOCK_SCOPES, landlock
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
# What the three modes of the network are to the engine, and what sharing the host's means.
NONE: dict[str, Any] = {"network": False}
ALLOW: dict[str, Any] = {"network": False, "reach": {"allow": ["example.org"]}}
HOST: dict[str, Any] = {"network": True}
WITH_NETWORK = {"a service on the host's loopback"}
WITHOUT_LANDLOCK = {"an abstract socket of the host"}

Seen = dict[str, tuple[str, str, str]]


def under_px(box: Driver, network: dict[str, Any]) -> Seen:
    done = box.run("python3", "/app/attempts.py", "/app/facts.json", **network)
    assert done.returncode == 0, done.stderr
    return {name: tuple(row) for name, row in json.loads(done.stdout).items()}


def open_ones(seen: Seen) -> dict[str, str]:
    return {name: detail for name, (_, result, detail) in seen.items() if result == "OPEN"}


def closes_abstract_sockets() -> bool:
    return landlock() >= LANDLOCK_SCOPES


@pytest.mark.parametrize("network", [NONE, ALLOW, HOST], ids=["none", "allow", "host"])
def test_under_bubblewrap(box: Driver, network: dict[str, Any]) -> None:
    with prepared(box):
        seen = under_px(box, network)
    assert len(seen) >= 90
    shared = WITH_NETWORK if closes_abstract_sockets() else WITH_NETWORK | WITHOUT_LANDLOCK
    expected = SHARED | (shared if network is HOST else set())
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
        ours = [under_px(caller, network) for network in (NONE, ALLOW, HOST)]
        dockers = under_docker(caller, daemon, tmp_path / "root.tar")
    # Nothing is open under px that docker's defaults close.
    assert set(open_ones(ours[0])) <= set(open_ones(dockers))
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    written, _, tail = rest.partition(END)
    if os.environ.get("PX_UPDATE_DOCS"):
        PAGE.write_text(f"{head}{BEGIN}\n{table(*ours, dockers)}\n{END}{tail}")
        return
    # docker's column is what its version here did; ours must be what the page says.
    if closes_abstract_sockets():
        assert without_docker(written) == without_docker(table(*ours, dockers))


def table(*columns: Seen) -> str:
    lines = ["| attempt | px, none | px, allow | px, host | docker's defaults |", "|---|---|---|---|---|"]
    group = ""
    for name, (here, _, _) in columns[0].items():
        if here != group:
            group = here
            lines.append(f"| **{group}** | | | | |")
        lines.append(" | ".join([f"| {name}", *(column[name][1].lower() for column in columns)]) + " |")
    return "\n".join(lines)


def without_docker(text: str) -> list[str]:
    return [line.rpartition("|")[0].rpartition("|")[0] for line in text.strip().splitlines()]
