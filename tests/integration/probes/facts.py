"""What the attempts try to reach, prepared on the host: a secret, a process, sockets, shared memory, a key."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.integration.engines.conftest import Driver
from tests.integration.engines.test_signals import mark

ATTEMPTS = Path(__file__).with_name("attempts.py")
VARIABLE = "PX_PROBE_SECRET_OF_THE_HOST"


@contextmanager
def prepared(box: Driver) -> Iterator[dict[str, Any]]:
    """The facts, also as /app/facts.json beside the attempts, for as long as what they name exists."""
    with ExitStack() as stack:
        facts = _facts(box, stack)
        (box.app / "facts.json").write_text(json.dumps(facts))
        (box.app / "attempts.py").write_text(ATTEMPTS.read_text())
        yield facts


def _facts(box: Driver, stack: ExitStack) -> dict[str, Any]:
    secret = box.directory / "secret"
    secret.write_text("of the host")
    (box.app / "link-to-secret").symlink_to(secret)
    seconds = mark()
    victim = stack.enter_context(subprocess.Popen(box.as_user(["sleep", seconds])))
    stack.callback(victim.kill)
    box.env[VARIABLE] = "1"
    shadow = Path("/etc/shadow")
    device = os.stat("/").st_dev
    return {
        "secret": str(secret),
        "shadow": shadow.read_text() if os.access(shadow, os.R_OK) else "not readable here",
        "home": str(box.directory),
        "home_mark": secret.name,
        "layer_file": str(box.layers[0] / "etc/passwd"),
        "disk": [os.major(device), os.minor(device)],
        "victim": victim.pid,
        "victim_mark": seconds,
        "shm_key": _shared_memory(stack),
        "key_name": "px-probe-of-the-host",
        "abstract": _abstract(stack),
        "port": stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1],
        "variable": VARIABLE,
        "host_directory": str(box.directory),
        "hostname": os.uname().nodename,
        "kernel": os.uname().release,
    }


def _abstract(stack: ExitStack) -> str:
    name = f"px-probe-{secrets.token_hex(8)}"
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    server.bind(f"\0{name}")
    server.listen()
    return name


def _shared_memory(stack: ExitStack) -> int:
    libc = ctypes.CDLL(None)
    key = 1 + secrets.randbelow(1 << 30)
    made = libc.shmget(key, 4096, 0o1666)
    stack.callback(libc.shmctl, made, 0, None)
    return key
