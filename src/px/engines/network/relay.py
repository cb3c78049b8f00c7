"""The relay of a sandbox whose network is limited: it answers names, and passes allowed connections on.

Inside, each allowed name gets an address of its own, at which the relay listens; the relay looks the name up outside
and connects to the real host.  Bytes pass unchanged, so TLS and every other protocol over TCP work as they are,
without a proxy setting.  Addresses that a rule names are served the same way.
"""

from __future__ import annotations

import array
import contextlib
import ipaddress
import resource
import socket
from functools import partial
from typing import TYPE_CHECKING

from px.engines.network import inside, refusals
from px.engines.network.flow import Connection, abort
from px.engines.network.lookup import NotAllowedError, connect
from px.engines.network.loop import Loop
from px.engines.network.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from px.engines.network.rules import Policy

MOST = 1000
"""Connections at once, and listeners, which every name has one or more of."""


class Relay:
    """One run's relay."""

    def __init__(self, policy: Policy, channel: socket.socket):
        self._policy, self._channel = policy, channel
        self._loop = Loop()
        self._refusals = refusals.Refusals()
        self._resolver = Resolver(policy, self._loop, self._refusals, self._listen)
        self._wide = {port for network, port in policy.ranges if network.version == 4 and network.num_addresses > 1}
        self._connections = self._listeners = 0
        self._joined: set[Connection] = set()
        self._most = min(MOST, _raised_limit() // 8)

    def run(self, lifeline: int) -> None:
        """Serve until the run is over, and pass on what the target sent before: without a relay the kernel would."""
        self._loop.run(lifeline)
        self._loop.finish(lambda: any(connection.owes for connection in self._joined))

    def prepare(self, orders: Sequence[inside.Order], published: Sequence[tuple[socket.socket, int]]) -> None:
        """Take over the sockets that the other half has made already."""
        work: dict[str, Callable[[socket.socket], None]] = {
            inside.RESOLVE: self._resolver.serve,
            inside.LISTENER: self._serve,
            inside.RESETS: self._watch_resets,
            inside.RESETS6: self._watch_resets,
            inside.UNREACHABLE: lambda raw: self._loop.watch(raw, self._on_unreachable),
        }
        for kind, _, _ in orders:
            with contextlib.suppress(OSError):  # what may be missing
                work[kind](self._receive())
        for listener, port in published:
            self._loop.watch(listener, partial(self._on_visitor, port))

    # --- sockets of the sandbox's network ----------------------------------------------------------------------

    def _receive(self) -> socket.socket:
        said, control, *_ = self._channel.recvmsg(256, socket.CMSG_SPACE(4))
        if not control:
            raise OSError(said.decode("utf-8", "replace") or "the sandbox's network is gone")
        return socket.socket(fileno=array.array("i", control[0][2][:4])[0])

    def _make(self, kind: str, address: str = "", port: int = 0) -> socket.socket:
        self._channel.send(f"{kind} {address} {port}".encode())
        return self._receive()

    def _listen(self, address: str, port: int) -> None:
        """Serve a name's address, unless a listener at all addresses does."""
        if port in self._wide:
            return
        if self._listeners >= self._most:
            raise OSError("there are too many names")
        self._listeners += 1
        self._serve(self._make(inside.LISTENER, address, port))

    def _serve(self, listener: socket.socket) -> None:
        self._loop.watch(listener, self._on_connection)

    # --- connections -------------------------------------------------------------------------------------------

    def _on_connection(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        if not self._has_room(client):
            return
        address, port = str(client.getsockname()[0]).partition("%")[0], client.getsockname()[1]
        host = self._host(address, port)
        if host is None:
            self._give_up(client)
        else:
            self._loop.apart(partial(self._meet, client, host, port, partial(connect, host, port, self._policy)))

    def _host(self, address: str, port: int) -> str | None:
        """What an address inside stands for; None for one that only a listener at all addresses serves."""
        if address in self._resolver.names:
            return self._resolver.names[address]
        parsed = ipaddress.ip_address(address)
        if parsed.is_loopback and port in self._policy.ports_of("localhost"):
            return "localhost"
        if self._policy.allows(parsed, port):
            return address
        if not parsed.is_loopback:
            self._refusals.say_refused(address, port)
        return None

    def _on_visitor(self, port: int, listener: socket.socket) -> None:
        """Somebody outside wants a port that the sandbox publishes."""
        visitor, _ = listener.accept()
        if not self._has_room(visitor):
            return
        server = self._make(inside.STREAM)

        def reach() -> socket.socket:
            try:
                server.connect(("127.0.0.1", port))
            except OSError:
                server.close()
                raise
            return server

        self._loop.apart(partial(self._meet, visitor, "", port, reach))  # an empty host: this way in

    def _meet(
        self, client: socket.socket, host: str, port: int, reach: Callable[[], socket.socket]
    ) -> Callable[[], None]:
        """In a thread: reach the other side; what it returns joins both."""
        try:
            server = reach()
        except OSError as e:
            return partial(self._failed, client, host, port, e)
        return partial(self._join, client, server, client if host else server)

    def _join(self, client: socket.socket, server: socket.socket, inner: socket.socket) -> None:
        def end() -> None:
            self._joined.discard(connection)
            self._ended()

        try:
            connection = Connection(self._loop.selector, client, server, end, inner)
        except OSError:
            abort(server)
            self._give_up(client)
        else:
            self._joined.add(connection)
            connection.advance()

    def _failed(self, client: socket.socket, host: str, port: int, failure: OSError) -> None:
        if isinstance(failure, NotAllowedError):
            self._refusals.say_refused(failure.address, failure.port, f"{host} leads there")
        elif host:
            # The target's own error is a reset: its connection was accepted before this one could fail.
            place = refusals.address_and_port(host, port)
            self._refusals.say(f"{place} {failure}", f"{place}: {failure.strerror or failure}")
        self._give_up(client)

    def _has_room(self, client: socket.socket) -> bool:
        self._connections += 1
        if self._connections <= self._most:
            return True
        self._refusals.say("", f"the sandbox has {self._most} connections; more are refused")
        self._give_up(client)
        return False

    def _give_up(self, client: socket.socket) -> None:
        abort(client)
        self._ended()

    def _ended(self) -> None:
        self._connections -= 1

    # --- refusals ----------------------------------------------------------------------------------------------

    def _watch_resets(self, raw: socket.socket) -> None:
        self._loop.watch(raw, self._on_reset)

    def _on_reset(self, raw: socket.socket) -> None:
        if place := refusals.refused_connection(raw):
            host = self._resolver.names.get(place[0], place[0])
            self._refusals.say_refused(host, place[1])

    def _on_unreachable(self, raw: socket.socket) -> None:
        place = refusals.refused_datagram(raw)
        if place and place[0] not in self._resolver.names:  # else it may try TCP next, as browsers do
            self._refusals.say_udp(*place)


def _raised_limit() -> int:
    """As many descriptors as this process may have, up to what it can use: a connection takes six, a listener one."""
    wanted = 8 * MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)
