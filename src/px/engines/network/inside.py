"""The half of the relay that stands in the sandbox's network namespace: it makes sockets there and hands them out.

It is a process of its own, because who enters a user namespace cannot leave it again.  The caller may enter: the
namespaces that bubblewrap made are the caller's own.  A socket stays in the namespace that it was made in, whoever has
it.  What must be there before the target starts is made at once; the relay takes over when something happens there.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from typing import TYPE_CHECKING

from px.engines.network import refusals
from px.warm.arguments import RESOLVER

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from px.engines.network.rules import Policy

    Order = tuple[str, str, int]
    """What kind of socket, its address, its port."""
else:
    import _socket as socket  # the same without its enumerations, which take longer than all that is done here

FIRST = RESOLVER
"""This namespace's own address, and its resolver's.  The range around it is for benchmarks of network devices
(RFC 2544), so no host anywhere has an address there: the relay gives one to each name."""
RANGE_BITS = 15

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_NS_GET_USERNS = 0xB701
# Of <linux/rtnetlink.h>: a new address, a new route, and what makes addresses this machine's own.
_NEW_ADDRESS, _NEW_ROUTE = 20, 24
_REQUEST, _ACK, _CREATE = 0x1, 0x4, 0x400
_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_ADDRESS, _LOCAL, _INTERFACE, _SOURCE = 1, 2, 4, 7
_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1
_LOOKS = 50_000  # ten seconds and more
_LOOPBACK = 1  # the number of `lo` in every namespace

BEGIN, END = b"begin", b"end"
LISTENER, STREAM, RESOLVE = "listener", "stream", "resolver"
# These see what the kernel refuses: resets of connections that nobody listens for, and unreachable ports.
RESETS, RESETS6, UNREACHABLE = "resets", "resets of version 6", "unreachable"


def plan(policy: Policy) -> list[Order]:
    """What the relay needs from the beginning."""
    found: list[Order] = [(RESOLVE, FIRST, 53), (RESETS, "", 0), (RESETS6, "", 0), (UNREACHABLE, "", 0)]
    wide = {(network.version, port) for network, port in policy.ranges if network.num_addresses > 1}
    found += [(LISTENER, "::" if version == 6 else "0.0.0.0", port) for version, port in sorted(wide)]  # noqa: S104
    alone = {(network.version, str(network[0]), port) for network, port in policy.ranges}
    alone |= {row for port in policy.ports_of("localhost") for row in ((4, "127.0.0.1", port), (6, "::1", port))}
    # A listener at all addresses leaves no room for one at a single address.
    return found + [
        (LISTENER, address, port) for version, address, port in sorted(alone) if (version, port) not in wide
    ]


def serve(relay: int, orders: list[Order], first_process: int, ready: int) -> None:
    """Enter the sandbox's namespaces, make what was ordered, say so, and make more until the relay is gone.

    All are descriptors: ``relay`` of a socket, the others of pipes.
    """
    setns = _setns()
    channel = socket.socket(fileno=relay)
    _enter(int(os.read(first_process, 32) or 0), setns)
    _make_everything_local()
    made = [_make_if_possible(*order) for order in orders]
    for (kind, address, port), one in zip(orders, made, strict=True):
        # A kernel without version 6, or one that shows no refusals, will do; a network without listeners will not.
        if isinstance(one, OSError) and kind in (RESOLVE, LISTENER) and address != "::1":
            raise OSError(f"{address} port {port}: {one.strerror}")
    os.write(ready, b"ready")
    if not _is_used(channel, [one for one in made if not isinstance(one, OSError)]):
        return
    for one in made:
        _hand_over(channel, one)
    while request := channel.recv(256):
        if request not in (BEGIN, END):
            kind, address, number = request.decode().split(" ")
            _hand_over(channel, _make_if_possible(kind, address, int(number)))


def _is_used(channel: socket.socket, made: list[socket.socket]) -> bool:
    """Wait until the target uses its network, or the relay says what to do; whether to begin.

    Many runs never use it: the relay is not even loaded then.
    """
    waiting = select.poll()
    for one in (channel, *made):
        waiting.register(one.fileno(), select.POLLIN)
    waiting.poll()
    return any(fd != channel.fileno() for fd, _ in waiting.poll(0)) or channel.recv(256) == BEGIN


def _hand_over(channel: socket.socket, made: socket.socket | OSError) -> None:
    if isinstance(made, OSError):
        channel.send((made.strerror or str(made)).encode())
        return
    channel.sendmsg([b"ok"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
    made.close()


def _make_if_possible(kind: str, address: str, port: int) -> socket.socket | OSError:
    try:
        return _make(kind, address, port)
    except OSError as e:
        return e


def _make(kind: str, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address or kind == RESETS6 else socket.AF_INET
    if kind in (RESETS, RESETS6, UNREACHABLE):
        raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP if kind == UNREACHABLE else socket.IPPROTO_TCP)
        (refusals.watch_unreachable if kind == UNREACHABLE else refusals.watch_resets)(raw)
        return raw
    made = socket.socket(family, socket.SOCK_DGRAM if kind == RESOLVE else socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if address:
            made.bind((address, port))
        if kind == LISTENER:
            made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def _enter(pid: int, setns: Callable[[int, int], None]) -> None:
    net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    # The process may be in another user namespace by now: the one that owns the network is the one to enter.
    setns(fcntl.ioctl(net, _NS_GET_USERNS), _CLONE_NEWUSER)
    setns(net, _CLONE_NEWNET)


def _setns() -> Callable[[int, int], None]:
    if sys.version_info >= (3, 12):
        return os.setns
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def setns(fd: int, kind: int) -> None:
        if libc.setns(fd, kind) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return setns


def _make_everything_local() -> None:
    """Let every address be this namespace's own.

    Then a connection ends here whatever its destination is: at the relay, where a rule allows it, or refused at once
    and seen by the relay, which says so.  The address beside that of loopback lets programs see that there is IPv4.
    """
    own = socket.inet_aton(FIRST)
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.bind((0, 0))
    _await_loopback(netlink)
    head = struct.pack("BBBBI", socket.AF_INET, RANGE_BITS, 0, _SCOPE_HOST, _LOOPBACK)
    _request(netlink, _NEW_ADDRESS, head + _attribute(_LOCAL, own) + _attribute(_ADDRESS, own))
    _request(netlink, _NEW_ROUTE, _local_route(socket.AF_INET) + _attribute(_SOURCE, own))
    with contextlib.suppress(OSError):  # a kernel without version 6 has nothing to close
        _request(netlink, _NEW_ROUTE, _local_route(socket.AF_INET6))
    netlink.close()


def _await_loopback(any_socket: socket.socket) -> None:
    """bubblewrap turns it on, a moment after it has said which process to enter; routes need it."""
    for _ in range(_LOOKS):
        flags = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        if struct.unpack_from("H", flags, 16)[0] & _IFF_UP:
            return
        time.sleep(0.0002)
    raise OSError("its loopback is off")


def _local_route(family: int) -> bytes:
    kind = (_TABLE_LOCAL, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL)
    return struct.pack("BBBBBBBBI", family, 0, 0, 0, *kind, 0) + _attribute(_INTERFACE, struct.pack("i", _LOOPBACK))


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data


def _request(netlink: socket.socket, kind: int, body: bytes) -> None:
    netlink.send(struct.pack("IHHII", 16 + len(body), kind, _REQUEST | _ACK | _CREATE, 1, 0) + body)
    (code,) = struct.unpack_from("i", netlink.recv(4096), 16)
    if code < 0:
        raise OSError(-code, os.strerror(-code))
