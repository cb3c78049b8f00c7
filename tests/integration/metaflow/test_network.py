"""``network=`` of a local step: only the hosts that it names."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from tests.integration.network.servers import serving

from .conftest import Workspace


def greet(connection: socket.socket) -> None:
    connection.sendall(b"hello")


def test_a_local_step_reaches_only_what_it_names(workspace: Workspace) -> None:
    with ExitStack() as stack:
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [stack.enter_context(serving(listener, greet)) for listener in listeners]
        both = ",".join(map(str, ports))
        step = f"sandbox:image=debian-12,network=localhost:{ports[0]}"
        done = workspace.run("reach.py", "run", "--ports", both, "--with", step)
    answers = workspace.ask("Flow('ReachFlow').latest_run['start'].task.data.answers")
    assert answers == ["hello", "ConnectionRefusedError"]
    assert "the sandbox may not reach refused.example; to allow it" in done.output


def test_a_host_that_is_none(workspace: Workspace) -> None:
    done = workspace.fail("reach.py", "run", "--ports", "1", "--with", "sandbox:network=not-a-host!")
    assert "network='not-a-host!': not-a-host!: it is neither a host's name nor an address." in done.output
