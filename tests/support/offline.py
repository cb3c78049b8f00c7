"""A process without a network, for the tests that must need none.

Where the kernel allows it (as root), the network is really gone: the thread moves into a network namespace that has
a loopback interface and nothing else, and everything that it starts is born there.  Elsewhere the sockets of this
process refuse to go anywhere but to this machine; programs that it starts are free.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
HERE = ("127.", "localhost", "::1")


@contextmanager
def no_network() -> Iterator[None]:
    """Without a network until the end of the block; loopback works."""
    with _in_empty_namespace() if _namespaces() else _refusing():
        yield


# --- as root ----------------------------------------------------------------------------------------------------


@contextmanager
def _in_empty_namespace() -> Iterator[None]:
    found = _namespaces()
    assert found is not None
    _enter(found[1])
    try:
        yield
    finally:
        _enter(found[0])


@contextmanager
def in_namespace(path: str) -> Iterator[None]:
    """This thread, in the network namespace at a path until the end of the block."""
    outside, there = _current(), os.open(path, os.O_RDONLY)
    try:
        _enter(there)
        yield
    finally:
        _enter(outside)
        os.close(outside)
        os.close(there)


@cache
def _namespaces() -> tuple[int, int] | None:
    """This thread's network namespace and an empty one, or None where none can be made."""
    outside = _current()
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        os.close(outside)
        return None
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
    empty = _current()
    _enter(outside)
    return outside, empty


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


# --- as anybody else --------------------------------------------------------------------------------------------

_refused = False


@contextmanager
def _refusing() -> Iterator[None]:
    global _refused  # noqa: PLW0603 - a hook of the interpreter stays for ever, so it has a switch
    _add_hook()
    _refused = True
    try:
        yield
    finally:
        _refused = False


@cache
def _add_hook() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[object, ...]) -> None:
    if not _refused or event not in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        return
    where = args[0] if event == "socket.getaddrinfo" else args[1]
    host = where[0] if isinstance(where, tuple) else where
    # An address that is no pair belongs to a socket of this machine, such as a Unix socket.
    elsewhere = event == "socket.getaddrinfo" or isinstance(where, tuple)
    if elsewhere and isinstance(host, str) and host and not host.startswith(HERE):
        raise OSError(errno.ENETUNREACH, f"unit tests have no network: {host}")
