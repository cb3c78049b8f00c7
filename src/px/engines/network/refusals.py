"""What was refused is said once for each host, with the flag that would allow it.

Names are refused by the relay's resolver.  Connections to addresses are refused by the kernel, which resets them
because nobody listens there; sockets that see such resets (and unreachable ports, for UDP) tell the relay.
"""

from __future__ import annotations

import array
import contextlib
import ipaddress
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
else:
    import _socket as socket  # the half inside uses some of this, and should start soon

_MOST = 50
_SO_ATTACH_FILTER = 26
_SOL_RAW, _ICMP_FILTER, _ICMP_UNREACHABLE = 255, 1, 3
# A reset that answers the first packet of a connection: RST and ACK without SYN, and sequence number 0.  The loopback
# carries everything that the relay moves as well, so the kernel must sort it out (classic BPF).
_FILTER = (
    (0x50, 0, 0, 13),  # the flags, at 13 of the TCP header, which begins at X
    (0x54, 0, 0, 0x16),
    (0x15, 0, 3, 0x14),
    (0x40, 0, 0, 4),  # the sequence number
    (0x15, 0, 1, 0),
    (0x06, 0, 0, 128),
    (0x06, 0, 0, 0),
)
_SKIP_IP_HEADER = (0xB1, 0, 0, 0)  # X: what raw sockets of version 4 show before the TCP header
_NO_IP_HEADER = (0x01, 0, 0, 0)  # X: nothing; those of version 6 show none


class Refusals:
    """Where refusals are said, and which were."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, host: str, text: str) -> None:
        if host in self._said or len(self._said) > _MOST:
            return
        self._said.add(host)
        if len(self._said) > _MOST:
            text = "more hosts were refused; they are not shown"
        # A terminal may be the target's, and raw.  Standard error may be closed by now.
        end = "\r\n" if os.isatty(2) else "\n"
        with contextlib.suppress(OSError):
            os.write(2, f"px: {text}{end}".encode())

    def say_refused(self, host: str, port: int | None = None, why: str = "") -> None:
        place = host if port is None else address_and_port(host, port)
        reason = f" ({why})" if why else ""
        self.say(host, f"the sandbox may not reach {place}{reason}; to allow it: --allow-net {place}")

    def say_udp(self, host: str, port: int) -> None:
        self.say(host, f"the sandbox may not reach {address_and_port(host, port)} by UDP; only TCP can be allowed")


def address_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def watch_resets(raw: socket.socket) -> None:
    """Let a raw TCP socket see refused connections and nothing else."""
    first = _NO_IP_HEADER if raw.family == socket.AF_INET6 else _SKIP_IP_HEADER
    program = array.array("B", b"".join(struct.pack("HBBI", *row) for row in (first, *_FILTER)))
    address, _ = program.buffer_info()
    raw.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxQ", len(_FILTER) + 1, address))


def watch_unreachable(raw: socket.socket) -> None:
    raw.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("I", 0xFFFFFFFF & ~(1 << _ICMP_UNREACHABLE)))


def refused_connection(raw: socket.socket) -> tuple[str, int] | None:
    """Who refused a connection: a reset comes from the address that was meant."""
    packet, sender = raw.recvfrom(256)
    start = 0 if raw.family == socket.AF_INET6 else (packet[0] & 0xF) * 4
    return _place(str(sender[0]), packet[start : start + 2])


def refused_datagram(raw: socket.socket) -> tuple[str, int] | None:
    """Where a datagram was meant to go: the complaint carries its first bytes."""
    packet = raw.recv(256)
    original = packet[(packet[0] & 0xF) * 4 + 8 :]
    if len(original) < 20 or original[9] != socket.IPPROTO_UDP:
        return None
    start = (original[0] & 0xF) * 4
    return _place(socket.inet_ntoa(original[16:20]), original[start + 2 : start + 4])


def _place(host: str, port: bytes) -> tuple[str, int] | None:
    """What to say; nothing about the sandbox's own loopback, where programs may look for each other."""
    if len(port) != 2 or ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return None
    return host, int.from_bytes(port)
