"""What a hostile target may try with the relay: it must live, stay small, and open nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engines.conftest import children, eventually
from tests.integration.network.conftest import SHOP, World
from tests.integration.network.servers import hello, serving

STILL_THERE = 'print(socket.create_connection(("shop.example", 80), 20).recv(100).decode())\n'


@pytest.fixture(autouse=True)
def shop(world: World) -> Iterator[None]:
    with world.internet.entered():
        listener = socket.create_server((SHOP, 80), backlog=512)
    with serving(listener, hello):
        yield


def test_malformed_questions(world: World) -> None:
    code = """
import os, random, socket, struct
chance = random.Random(1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("198.18.0.1", 53))
good = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\\4shop\\7example\\0" + struct.pack("!HH", 1, 1)
for n in range(5000):
    packet = bytearray(good)
    for _ in range(chance.randrange(6)):
        packet[chance.randrange(len(packet))] = chance.randrange(256)
    try:
        s.send(bytes(packet[:chance.randrange(1, len(packet) + 1)]) + os.urandom(chance.randrange(3)))
        s.send(os.urandom(chance.choice([1, 12, 60000])))
    except OSError:
        pass
"""
    done = world.allow(code + STILL_THERE, "shop.example")
    assert done.stdout == f"{SHOP}:80 \n"
    assert done.stderr.isascii()
    assert all(c.isprintable() for c in done.stderr.replace("\n", ""))
    assert len(done.stderr.splitlines()) <= 51


def test_names_cannot_write_to_the_terminal(world: World) -> None:
    code = r"""
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name in (b"\x05\x1b[31m\x03org\0", b"\x03a\nb\0", b"\x04\xff\xfe\xfd\xfc\0"):
    s.sendto(struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + name + struct.pack("!HH", 1, 1), ("198.18.0.1", 53))
    print(s.recv(512)[3] & 15)
"""
    done = world.allow(code, "shop.example")
    assert (done.stdout, done.stderr) == ("3\n3\n3\n", "")


def test_many_names_and_refused_hosts(world: World) -> None:
    """What is said has an end, and so have the addresses that names get."""
    code = """
import socket
for n in range(200):
    try: socket.create_connection((f"203.0.113.{n}", 81), 5)
    except OSError: pass
for n in range(100):
    try: socket.gethostbyname(f"n{n}.example")
    except OSError: pass
"""
    done = world.allow(code + STILL_THERE, "shop.example")
    assert done.stdout == f"{SHOP}:80 \n"
    said = done.stderr.splitlines()
    assert len(said) == 51
    assert said[-1] == "px: more hosts were refused; they are not shown"


@pytest.mark.slow
def test_more_connections_than_the_relay_has_room_for(world: World) -> None:
    code = """
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []
for _ in range(1100):
    try:
        held.append(socket.create_connection(("shop.example", 80), 20))
    except ConnectionResetError:
        pass
time.sleep(1)
alive = 0
for s in held:
    try:
        alive += s.recv(100) != b""
    except OSError:
        pass
print(alive <= 1000, alive > 900)
for s in held: s.close()
time.sleep(1)
"""
    done = world.allow(code + STILL_THERE, "shop.example")
    assert done.stdout == f"True True\n{SHOP}:80 \n", done.stderr
    assert done.stderr == "px: the sandbox has 1000 connections; more are refused\n"


def test_a_reader_that_never_reads_costs_no_memory(world: World) -> None:
    """The sender is held back, as it would be without a relay."""
    sent = []

    def pour(connection: socket.socket) -> None:
        connection.settimeout(3)
        while True:  # until it takes too long
            sent.append(connection.send(bytes(1 << 20)))

    with world.internet.entered():
        listener = socket.create_server((SHOP, 9100))
    code = 'import socket, sys\ns = socket.create_connection(("shop.example", 9100))\nsys.stdin.read()\n'
    with serving(listener, pour):
        reach = {"allow": ["shop.example:9100"]}
        running = world.start("python3", "-c", code, stdin=-1, network=False, reach=reach)
        eventually("a sender that waits", lambda: len(sent) > 3)
        relay = max(_resident(pid) for pid in children(running.pid))
        running.communicate()
    assert relay < 64 << 20


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_the_relays_processes_and_sockets_are_not_visible(world: World) -> None:
    code = """
import os
print(sorted(p for p in os.listdir("/proc") if p.isdigit() and int(p) > 2))
print(sorted(os.listdir("/proc/self/fd")))
"""
    assert world.allow(code, "shop.example").stdout == "[]\n['0', '1', '2', '3']\n"
