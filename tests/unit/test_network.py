"""The unit tests really have no network: what tests/unit/conftest.py promises."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys

import pytest

from tests.support.needs import need, only_for

NOBODY = ("192.0.2.1", 9)  # an address for documentation, which no machine has


def test_nothing_can_be_reached() -> None:
    with pytest.raises(OSError, match=r"nreachable|no network") as caught:
        socket.create_connection(NOBODY, timeout=5)
    assert caught.value.errno == errno.ENETUNREACH
    with pytest.raises(OSError, match=r"no network|resolution|not known"):
        socket.getaddrinfo("registry.example.org", 443)


def test_nor_by_the_programs_that_a_test_starts() -> None:
    only_for("root", "nobody else can take the network from a process that runs already")
    need("network namespaces")
    code = "import json, socket; print(json.dumps([name for _, name in socket.if_nameindex()]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == ["lo"]


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5) as client:
        client.sendall(b"x")
