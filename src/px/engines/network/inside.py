"""The half of the relay that stands in the sandbox's network namespace: it makes sockets there and hands them out.

It is a process of its own, because who enters a user namespace cannot leave it again.  The caller may enter: the
namespaces that bubblewrap made are the caller's own.  A socket stays in the namespace that it was made in, whoever has
it, so the relay itself binds and connects them.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct

from px.warm.arguments import RESOLVER

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
_LOOPBACK = 1  # the number of `lo` in every namespace

STREAM, STREAM6, DATAGRAM, REFUSED, REFUSED6, UNREACHABLE = (b"s", b"S", b"d", b"r", b"R", b"u")
_KINDS = {
    STREAM: (socket.AF_INET, socket.SOCK_STREAM, 0),
    STREAM6: (socket.AF_INET6, socket.SOCK_STREAM, 0),
    DATAGRAM: (socket.AF_INET, socket.SOCK_DGRAM, 0),
    # These see what the kernel refuses: resets of connections that nobody listens for, and unreachable ports.
    REFUSED: (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
    REFUSED6: (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP),
    UNREACHABLE: (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
}


def serve(channel: socket.socket) -> None:
    """Enter the namespaces of the process whose number comes first, then make sockets until the relay is gone."""
    _enter(int(channel.recv(32) or b"0"))
    _make_everything_local()
    channel.send(b"ready")
    while kind := channel.recv(1):
        try:
            made = socket.socket(*_KINDS[kind])
        except OSError as e:
            channel.send(str(e).encode())
            continue
        with made:
            channel.sendmsg([b"ok"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])


def _enter(pid: int) -> None:
    net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    # The process may be in another user namespace by now: the one that owns the network is the one to enter.
    user = fcntl.ioctl(net, _NS_GET_USERNS)
    _setns(user, _CLONE_NEWUSER)
    _setns(net, _CLONE_NEWNET)


def _setns(fd: int, kind: int) -> None:
    if hasattr(os, "setns"):  # Python 3.12
        os.setns(fd, kind)
        return
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(fd, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _make_everything_local() -> None:
    """Let every address be this namespace's own.

    Then a connection ends here whatever its destination is: at the relay, where a rule allows it, or refused at once
    and seen by the relay, which says so.  The address beside that of loopback lets programs see that there is IPv4.
    """
    own = socket.inet_aton(FIRST)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.bind((0, 0))
        head = struct.pack("BBBBI", socket.AF_INET, RANGE_BITS, 0, _SCOPE_HOST, _LOOPBACK)
        _request(netlink, _NEW_ADDRESS, head + _attribute(_LOCAL, own) + _attribute(_ADDRESS, own))
        _request(netlink, _NEW_ROUTE, _local_route(socket.AF_INET) + _attribute(_SOURCE, own))
        with contextlib.suppress(OSError):  # a kernel without version 6 has nothing to close
            _request(netlink, _NEW_ROUTE, _local_route(socket.AF_INET6))


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
