"""The sandbox's resolver: it gives each allowed name an address of its own, and refuses every other."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import TYPE_CHECKING, Any

from px.engines.network import dns, inside
from px.engines.network.lookup import NotAllowedError, find

if TYPE_CHECKING:
    from collections.abc import Callable

    from px.engines.network.loop import Loop
    from px.engines.network.refusals import Refusals
    from px.engines.network.rules import Policy

MOST_LOOKUPS = 32


class Resolver:
    """Answers questions by UDP; ``listen`` makes the relay listen at a name's address."""

    def __init__(self, policy: Policy, loop: Loop, refusals: Refusals, listen: Callable[[str, int], None]):
        self._policy, self._loop, self._refusals, self._listen = policy, loop, refusals, listen
        self._addresses: dict[str, str] = {}
        self.names: dict[str, str] = {}
        """Address inside -> the name that it was given to."""
        self._last = int(ipaddress.ip_address(inside.FIRST)) + 255
        self._lookups = 0

    def serve(self, datagrams: socket.socket) -> None:
        self._datagrams = datagrams
        self._loop.watch(datagrams, self._on_question)

    def _on_question(self, datagrams: socket.socket) -> None:
        packet, client = datagrams.recvfrom(4097)
        question = dns.parse(packet)
        if question is None:
            return
        if question.name in self._addresses:
            self._answer(question, client, dns.NO_ERROR)
        elif not question.is_about_a_host:
            self._answer(question, client, dns.NO_SUCH_NAME)
        elif not self._policy.ports_of(question.name):
            self._refusals.say_refused(question.name)
            self._answer(question, client, dns.NO_SUCH_NAME)
        elif self._lookups < MOST_LOOKUPS:  # else the other side asks again
            self._lookups += 1
            self._loop.apart(lambda: self._look_up(question, client))

    def _look_up(self, question: dns.Question, client: Any) -> Callable[[], None]:
        """Whether the host exists, and may be reached: programs expect to be told at this point."""
        failure: OSError | None = None
        try:
            find(question.name, self._policy.ports_of(question.name)[0], self._policy)
        except OSError as e:
            failure = e
        return lambda: self._looked_up(question, client, failure)

    def _looked_up(self, question: dns.Question, client: Any, failure: OSError | None) -> None:
        self._lookups -= 1
        if isinstance(failure, NotAllowedError):
            self._refusals.say_refused(failure.address, failure.port, f"{question.name} leads there")
        if failure is None:
            self._answer(question, client, self._give_address(question.name))
        else:
            later = isinstance(failure, socket.gaierror) and failure.errno == socket.EAI_AGAIN
            self._answer(question, client, dns.SERVER_FAILED if later else dns.NO_SUCH_NAME)

    def _give_address(self, name: str) -> int:
        if name in self._addresses:  # asked for version 4 and 6 at once, it was looked up twice
            return dns.NO_ERROR
        self._last += 1
        address = str(ipaddress.ip_address(self._last))
        try:
            for port in self._policy.ports_of(name):
                self._listen(address, port)
        except OSError as e:
            # Too many names; or a server of the sandbox itself has the port, at every address.
            self._refusals.say(name, f"{name} cannot be served in the sandbox: {e.strerror or e}")
            return dns.SERVER_FAILED
        self._addresses[name], self.names[address] = address, name
        return dns.NO_ERROR

    def _answer(self, question: dns.Question, client: Any, code: int) -> None:
        address = self._addresses.get(question.name)
        packet = dns.answer(question, code, socket.inet_aton(address) if address else None)
        with contextlib.suppress(OSError):  # nobody waits for it any more
            self._datagrams.sendto(packet, client)
