"""One thread that serves every socket of the relay, and threads for what blocks."""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[socket.socket], None]

_LAST_TURNS = 20
_PATIENCE = 5.0


class Loop:
    """Waits for sockets, and calls what was registered for them."""

    def __init__(self) -> None:
        threading.stack_size(512 * 1024)  # the usual eight megabytes, a thousand times, may be more than there are
        self.selector = selectors.DefaultSelector()
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        bell, self._ring = socket.socketpair()
        self.watch(bell, self._on_bell)

    def watch(self, one: socket.socket, work: Work) -> None:
        """Call ``work`` when there is something to read."""
        one.setblocking(False)
        self.selector.register(one, selectors.EVENT_READ, work)

    def apart(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do what blocks in a thread, and what it returns here."""

        def thread() -> None:
            self._done.put(work())
            self._ring.send(b"!")

        threading.Thread(target=thread, daemon=True).start()

    def _on_bell(self, bell: socket.socket) -> None:
        bell.recv(4096)
        while not self._done.empty():
            self._done.get()()

    def run(self, lifeline: int) -> None:
        """Serve until the other end of the lifeline is closed, and then what has come by then: it may be refused."""
        self.selector.register(lifeline, selectors.EVENT_READ)
        while self._serve(self.selector.select(), lifeline):
            pass
        self.selector.unregister(lifeline)
        for _ in range(_LAST_TURNS):
            self._serve(self.selector.select(0), lifeline)

    def finish(self, pending: Callable[[], bool]) -> None:
        """Serve as long as something is pending and goes on."""
        while pending() and (ready := self.selector.select(_PATIENCE)):
            self._serve(ready, -1)

    @staticmethod
    def _serve(ready: list[tuple[selectors.SelectorKey, int]], lifeline: int) -> bool:
        """Whether to go on."""
        for key, _ in ready:
            if key.fd != lifeline:
                with contextlib.suppress(OSError):  # the other side may be gone again
                    key.data(key.fileobj)
        return all(key.fd != lifeline for key, _ in ready)
