"""Where an allowed name leads, outside: looked up and checked for every connection, so that an answer that changes
(DNS rebinding) changes nothing."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from px.engines.network.rules import Address, Policy

_SECONDS = 10


class NotAllowedError(OSError):
    """An allowed name leads to an address that must be named itself."""

    def __init__(self, address: str, port: int):
        super().__init__(f"{address} must be named itself")
        self.address, self.port = address, port


def find(host: str, port: int, policy: Policy) -> list[Address]:
    """The addresses of a host that may be reached; ``socket.gaierror`` if it has none."""
    rows = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)  # as bytes: nothing to convert
    found = list(dict.fromkeys(ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in rows))
    allowed = [a for a in found if policy.may_lead_to(host, a, port) and (policy.allows(a, port) or not _is_own(a))]
    if not allowed:
        raise NotAllowedError(str(found[0]), port)
    return allowed


def _is_own(address: Address) -> bool:
    """Whether this is an address of this machine beside loopback: services that listen everywhere are there, too.

    A machine talks to itself from the same address.  Nothing is sent to find that out.
    """
    if address.is_loopback:
        return False
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0]) == address
        except OSError:
            return False


def connect(host: str, port: int, policy: Policy) -> socket.socket:
    """A connection to the first address that answers."""
    problem: OSError | None = None
    for address in find(host, port, policy):
        server = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
        try:
            server.settimeout(_SECONDS)
            server.connect((str(address), port))
        except OSError as e:
            server.close()
            problem = e
        else:
            return server
    raise problem or OSError("no address")
