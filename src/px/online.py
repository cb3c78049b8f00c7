"""Whether this machine has a network, found out before something waits for a long time.

A name server that never answers costs every lookup ten seconds or more, and each program tries several times.  So px
asks the name servers once, itself: two tries of a second.  Where none of them answers, nothing is forbidden.  px, and
the uv that it starts, only wait less.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import threading
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIES, SECONDS = 2, 1.0
LOOKUP = 0.5
"""How many seconds a name has that is found without a name server, in /etc/hosts for example."""
RESOLV_CONF = "/etc/resolv.conf"
_MOST_SERVERS = 3  # as many as the C library asks
_LARGEST = 1 << 16
# Which name servers has the root?  Every server knows, or says that it does not tell: any answer will do.
QUESTION = b"\x01\x00" + b"\x00\x01" + b"\x00" * 6 + b"\x00" + b"\x00\x02" + b"\x00\x01"
SHORT_LOOKUPS = "timeout:1 attempts:1"
"""For the C library (``RES_OPTIONS``), where no name server answers."""


def patience() -> dict[str, str]:
    """What uv is told where there is no network: it would try again for up to a minute before it says so."""
    silent = names_are_silent()
    tries = {"UV_HTTP_RETRIES": "0"} if silent or not has_route() else {}
    return {**tries, **({"RES_OPTIONS": SHORT_LOOKUPS} if silent else {})}


def has_route() -> bool:
    """Whether this machine has a way to any other."""
    try:
        with open("/proc/net/route", encoding="ascii") as v4, open("/proc/net/ipv6_route", encoding="ascii") as v6:
            return len(v4.readlines()) > 1 or any(not line.rstrip().endswith(" lo") for line in v6)
    except OSError:
        return True  # not Linux, or no IPv6: nothing is known


@cache
def names_are_silent() -> bool:
    """Whether this machine has name servers, and none of them says anything."""
    return are_silent([(server, 53) for server in name_servers()])


@cache
def is_lost(host: str) -> bool:
    """Whether looking for this host would only wait for a name server that does not answer."""
    return not _is_address(host) and host != "localhost" and names_are_silent() and not _is_found(host)


def name_servers(path: str = RESOLV_CONF) -> list[str]:
    """The name servers that the C library would ask."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            words = [line.split() for line in f.read(_LARGEST).splitlines()]
    except OSError:
        return []
    named = [w[1] for w in words if len(w) > 1 and w[0] == "nameserver"]
    return [server for server in named if _is_address(server)][:_MOST_SERVERS]


def are_silent(servers: Sequence[tuple[str, int]]) -> bool:
    """Whether these were asked and said nothing; one that is not there at all is no reason to wait."""
    with ExitStack() as stack:
        asked = [stack.enter_context(s) for where in servers if (s := _connected(where)) is not None]
        if not asked or len(asked) < len(servers):
            return False
        for _ in range(TRIES):
            if not all(map(_ask, asked)) or select.select(asked, [], [], SECONDS)[0]:
                return False
    return True


def _connected(where: tuple[str, int]) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    found = socket.socket(family, socket.SOCK_DGRAM)
    try:
        found.connect(where)  # so that only this server can answer, and "nobody is here" is heard as well
    except OSError:
        found.close()
        return None
    return found


def _ask(server: socket.socket) -> bool:
    try:
        server.send(os.urandom(2) + QUESTION)
    except OSError:
        return False
    return True


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _is_found(host: str) -> bool:
    found: list[object] = []

    def look() -> None:
        try:
            found.append(socket.getaddrinfo(host, None))
        except OSError:
            return

    # A lookup cannot be stopped.  A daemon thread may go on with it, and does not keep px from ending.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(LOOKUP)
    return bool(found)
