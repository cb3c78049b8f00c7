"""What a sandbox with ``--network allow`` reaches: the named hosts and ports, by any TCP client, and nothing else."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.engines.conftest import children, eventually
from tests.integration.network.conftest import DATABASE, MACHINE, METADATA, SHOP, World
from tests.integration.network.servers import hello, http, over_tls, serving

# Each attempt on a line of its own: what came back, or the kind of error.
TRY = """
import socket
def attempt(host, port, family=0):
    try:
        with socket.create_connection((host, port), 20) as s:
            print(s.recv(100).decode() or "ended")
    except OSError as e:
        print(type(e).__name__)
"""
LONG = 20 << 20


@pytest.fixture(autouse=True)
def servers(world: World) -> Iterator[None]:
    """A shop and a database on the internet, a metadata service, and a server on the machine's own loopback."""
    with ExitStack() as stack:
        for address, port in ((SHOP, 80), (SHOP, 8080), (DATABASE, 5432), (METADATA, 80)):
            with world.internet.entered():
                listener = socket.create_server((address, port))
            stack.enter_context(serving(listener, hello))
        for address in ("127.0.0.1", MACHINE):
            with world.machine.entered():
                listener = socket.create_server((address, 7000))
            stack.enter_context(serving(listener, hello))
        yield


def test_requests_over_tls_by_name(world: World, tmp_path: Path) -> None:
    wrap, certificate = over_tls(tmp_path, "shop.example", "www.shop.example")
    trusted = world.directory / "ca.pem"
    trusted.write_bytes(certificate.read_bytes())
    trusted.chmod(0o644)
    code = """
import urllib.request
for name in ("shop.example", "www.shop.example"):
    print(urllib.request.urlopen(f"https://{name}/", timeout=20).read().decode())
"""
    with world.internet.entered():
        listener = socket.create_server((SHOP, 443))
    with serving(listener, wrap(http)):
        done = world.allow(code, "shop.example", "*.shop.example", extra_ca=str(trusted))
    assert done.stdout == "you asked shop.example\nyou asked www.shop.example\n", done.stderr
    assert done.stderr == ""


def test_names_wildcards_addresses_and_ranges(world: World) -> None:
    code = (
        TRY
        + f"""
attempt("shop.example", 80)
attempt("api.shop.example", 8080)
attempt("{DATABASE}", 5432)
attempt("db.example", 5432)
"""
    )
    done = world.allow(code, "shop.example:80", "*.shop.example:8080", "203.0.113.8/29:5432", "db.example:5432")
    expected = [f"{SHOP}:80 ", f"{SHOP}:8080 ", f"{DATABASE}:5432 ", f"{DATABASE}:5432 "]
    assert done.stdout.splitlines() == expected, done.stderr
    assert done.stderr == ""


def test_what_is_refused_is_said_once_with_the_flag_that_allows_it(world: World) -> None:
    code = (
        TRY
        + f"""
for _ in range(2):
    attempt("db.example", 5432)        # another name
    attempt("shop.example", 8080)      # another port of an allowed name
    attempt("www.shop.example", 80)    # a name below an allowed one
    attempt("{DATABASE}", 5432)
    attempt("2001:db8::7", 443)
"""
    )
    done = world.allow(code, "shop.example:80")
    refused = "ConnectionRefusedError"
    assert done.stdout.splitlines() == ["gaierror", refused, "gaierror", refused, refused] * 2
    places = ["db.example", "shop.example:8080", "www.shop.example", f"{DATABASE}:5432", "[2001:db8::7]:443"]
    said = [f"px: the sandbox may not reach {place}; to allow it: --allow-net {place}" for place in places]
    assert sorted(done.stderr.splitlines()) == sorted(said)


def test_nothing_is_allowed_by_an_empty_list(world: World) -> None:
    done = world.allow(TRY + 'attempt("shop.example", 80)')
    assert (done.stdout, done.stderr.count("--allow-net shop.example")) == ("gaierror\n", 1)


def test_this_machine_and_metadata_are_closed_unless_they_are_named(world: World) -> None:
    code = (
        TRY
        + f"""
attempt("127.0.0.1", 7000)
attempt("{MACHINE}", 7000)
attempt("{METADATA}", 80)
"""
    )
    closed = world.allow(code, "shop.example", "*.shop.example:80,7000", "0.0.0.0/0:80")
    assert closed.stdout.splitlines() == ["ConnectionRefusedError"] * 2 + ["ConnectionResetError"], closed.stderr
    named = world.allow(code, "localhost:7000", f"{MACHINE}:7000", METADATA)
    assert named.stdout.splitlines() == ["127.0.0.1:7000 ", f"{MACHINE}:7000 ", f"{METADATA}:80 "], named.stderr


@pytest.mark.parametrize(("name", "address"), [("loop", "127.0.0.1"), ("meta", METADATA), ("me", MACHINE)])
def test_a_name_cannot_lead_to_them(world: World, name: str, address: str) -> None:
    """DNS belongs to others: what it says about an allowed name must not open this machine."""
    host = f"{name}.shop.example"
    for rule in ("*.shop.example:80,7000", f"{host}:80,7000"):
        done = world.allow(TRY + f'attempt("{host}", 80)\nattempt("{host}", 7000)', rule)
        assert done.stdout == "gaierror\ngaierror\n"
        place = f"{address}:80"
        assert done.stderr == (
            f"px: the sandbox may not reach {place} ({host} leads there); to allow it: --allow-net {place}\n"
        )


def test_localhost_by_name_and_the_sandboxs_own_loopback(world: World) -> None:
    code = (
        TRY
        + """
attempt("localhost", 7000)
attempt("::1", 7000)
own = socket.create_server(("127.0.0.1", 7001))
print(socket.create_connection(("localhost", 7001)).getpeername())
attempt("127.0.0.1", 7002)
"""
    )
    expected = ["127.0.0.1:7000 ", "127.0.0.1:7000 ", "('127.0.0.1', 7001)", "ConnectionRefusedError"]
    for more in ((), ("203.0.113.0/24:7000", "127.0.0.1:7000")):
        done = world.allow(code, "localhost:7000", *more)
        assert (done.stdout.splitlines(), done.stderr) == (expected, "")


def test_udp_does_not_pass_and_is_said(world: World) -> None:
    with world.internet.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((SHOP, 9000))
        code = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("{SHOP}", 9000))
s.send(b"hello")
try:
    s.recv(10)
except OSError as e:
    print(type(e).__name__)
"""
        done = world.allow(code, f"{SHOP}:9000")
        assert done.stdout == "ConnectionRefusedError\n"
        assert done.stderr == f"px: the sandbox may not reach {SHOP}:9000 by UDP; only TCP can be allowed\n"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(10)


def test_abstract_sockets_and_other_interfaces_are_not_there(world: World) -> None:
    with world.machine.entered(), socket.socket(socket.AF_UNIX) as server:
        server.bind("\0px-test")
        server.listen()
        code = """
import socket
print([name for _, name in socket.if_nameindex()])
try:
    socket.socket(socket.AF_UNIX).connect("\\0px-test")
except OSError as e:
    print(type(e).__name__)
"""
        assert world.allow(code, "shop.example").stdout == "['lo']\nConnectionRefusedError\n"


def test_a_long_download_and_upload_arrive_whole(world: World) -> None:
    content = os.urandom(1 << 20) * (LONG >> 20)

    def download(connection: socket.socket) -> None:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as f:
            connection.close()
            got.append(hashlib.sha256(f.read()).hexdigest())

    got: list[str] = []
    code = """
import hashlib, socket, threading
s = socket.create_connection(("shop.example", 9001))
data = bytes(range(256)) * 80000
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
received = s.makefile("rb").read()
print(hashlib.sha256(received).hexdigest(), hashlib.sha256(data).hexdigest())
"""
    with world.internet.entered():
        listener = socket.create_server((SHOP, 9001))
    with serving(listener, download):
        done = world.allow(code, "shop.example:9001")
        eventually("the end of the upload", lambda: got)
    assert done.stdout.split() == [hashlib.sha256(content).hexdigest(), got[0]], done.stderr


def test_a_server_that_is_not_there_and_one_that_breaks_off(world: World) -> None:
    def break_off(connection: socket.socket) -> None:
        connection.recv(1)  # from here on the connection stands: px must not call it one that could not be made
        connection.sendall(b"half")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with world.internet.entered():
        listener = socket.create_server((SHOP, 9002))
    code = (
        TRY
        + """
attempt("shop.example", 9003)
s = socket.create_connection(("shop.example", 9002))
s.sendall(b"?")
try:
    while s.recv(100): pass
    print("an ordinary end")
except OSError as e:
    print(type(e).__name__)
"""
    )
    with serving(listener, break_off):
        done = world.allow(code, "shop.example:9002,9003")
    assert done.stdout.splitlines() == ["ConnectionResetError"] * 2
    assert done.stderr == "px: shop.example:9003: Connection refused\n"


def test_publish_makes_a_server_inside_reachable(world: World) -> None:
    code = """
import socket
server = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
for _ in range(2):
    connection, _ = server.accept()
    connection.sendall(b"from inside: " + connection.recv(100))
    connection.close()
"""
    reach = {"publish": ["8000", f"{MACHINE}:8001:8000"]}
    running = world.start("python3", "-c", code, network=False, reach=reach)
    assert running.stdout is not None
    assert running.stdout.readline() == "listening\n"
    for place in (world.machine, "127.0.0.1", 8000), (world.internet, MACHINE, 8001):
        with place[0].entered(), socket.create_connection(place[1:], 20) as client:
            client.sendall(b"hello")
            assert client.makefile().read() == "from inside: hello"
    assert running.wait(30) == 0
    running.communicate()


def test_a_published_port_that_is_taken(world: World) -> None:
    done = world.run("true", network=False, reach={"publish": ["7000"]})
    assert "PX040  --publish 127.0.0.1:7000: Address already in use." in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_relay_ends_with_px(world: World, number: int) -> None:
    running = world.start("sleep", "1000", network=False, reach={"allow": ["shop.example"], "publish": ["8000"]})
    eventually("the sandbox", lambda: len(children(running.pid)) == 3)
    family = children(running.pid)
    running.send_signal(number)
    running.communicate(timeout=30)
    # A zombie, which waits for a parent that does not care, is as good as gone.
    eventually("its end", lambda: not [p for p in family if _alive(p)])


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
