"""A small world: a machine that runs px, and an internet beside it, each in a network namespace of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.engines.conftest import DRIVER, Driver, make_driver
from tests.integration.engines.conftest import layers as _layers
from tests.support.needs import need, only_for
from tests.support.offline import in_namespace
from tests.support.users import another_user

layers = _layers

SHOP, DATABASE, METADATA, RESOLVER = "203.0.113.10", "203.0.113.11", "169.254.169.254", "203.0.113.53"
MACHINE = "192.0.2.1"
"""The address of the machine that runs px; 192.0.2.2 is the internet's end of its cable."""
HOSTS = f"""\
127.0.0.1 localhost
{SHOP} shop.example www.shop.example api.shop.example
{DATABASE} db.example
127.0.0.1 loop.shop.example
{METADATA} meta.shop.example
{MACHINE} me.shop.example
"""


@dataclass
class Place:
    """A network namespace with a mount namespace, kept by a process that sleeps."""

    process: subprocess.Popen[str]

    @property
    def prefix(self) -> list[str]:
        """What to put before a command to run it there."""
        names = f"/proc/{self.process.pid}/ns"
        return ["nsenter", f"--net={names}/net", f"--mount={names}/mnt", "--"]

    def run(self, *argv: str) -> None:
        subprocess.run([*self.prefix, *argv], check=True)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread makes its sockets there."""
        with in_namespace(f"/proc/{self.process.pid}/ns/net"):
            yield


@contextmanager
def place() -> Iterator[Place]:
    command = ["unshare", "--net", "--mount", "sh", "-c", "echo ready; exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield Place(process)
        finally:
            process.kill()


@dataclass
class World(Driver):
    """A driver whose sandboxes run on the machine of this world."""

    machine: Place = field(kw_only=True)
    internet: Place = field(kw_only=True)

    def as_user(self, command: list[str]) -> list[str]:
        return [*self.machine.prefix, *super().as_user(command)]

    def allow(self, code: str, *rules: str, **fields: object) -> subprocess.CompletedProcess[str]:
        """Run Python code with a network of these hosts only."""
        return self.python(code, network=False, reach={"allow": rules}, **fields)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    only_for("root", "nobody else can make two networks and a cable between them")
    need("network namespaces", "iproute2")
    hosts = tmp_path_factory.mktemp("world") / "hosts"
    hosts.write_text(HOSTS)
    nowhere = hosts.with_name("resolv.conf")
    nowhere.write_text(f"nameserver {RESOLVER}\noptions timeout:1 attempts:1\n")
    with ExitStack() as stack:
        machine, internet = stack.enter_context(place()), stack.enter_context(place())
        pids = str(machine.process.pid), str(internet.process.pid)
        cable = ["ip", "link", "add", "px0", "netns", pids[0], "type", "veth", "peer", "name", "px0", "netns", pids[1]]
        subprocess.run(cable, check=True)
        for where, address in ((machine, MACHINE), (internet, "192.0.2.2")):
            where.run("ip", "link", "set", "lo", "up")
            where.run("ip", "link", "set", "px0", "up")
            where.run("ip", "address", "add", f"{address}/24", "dev", "px0")
        for address in (SHOP, DATABASE, METADATA, RESOLVER):
            internet.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        for route in ("default", "169.254.0.0/16"):
            machine.run("ip", "route", "add", route, "via", "192.0.2.2")
        machine.run("mount", "--bind", str(hosts), "/etc/hosts")
        machine.run("mount", "--bind", str(nowhere), "/etc/resolv.conf")
        yield machine, internet


@pytest.fixture(params=["caller", "ordinary user"])
def world(request: pytest.FixtureRequest, layers: tuple[Path, ...], places: tuple[Place, Place]) -> Iterator[World]:
    need("bubblewrap")
    uid = os.geteuid() if request.param == "caller" else another_user(layers[0], DRIVER.parent)
    for made in make_driver(layers, uid):
        yield World(made.layers, made.directory, made.uid, machine=places[0], internet=places[1])
