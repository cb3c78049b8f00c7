"""Bytes between two sockets, both ways, without copying them: ``splice`` moves them through a pipe in the kernel.

The pipe is the only buffer, so one side that reads slowly slows the other down, and memory is bounded.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE = 1 << 16  # what a pipe holds
_TURNS = 16  # pieces until other connections have their turn
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def abort(connection: socket.socket) -> None:
    """Close with a reset, as the other side would see without a relay: an ordinary end could look like success."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class _Flow:
    """One direction."""

    def __init__(self, source: socket.socket, sink: socket.socket):
        self.source, self.sink = source, sink
        self.read_end, self.write_end = os.pipe()
        self.held = 0
        """Bytes in the pipe."""
        self.ended = self.finished = False
        """Whether the source has no more; whether the sink was told."""

    def advance(self) -> None:
        """Move what can be moved now."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_TURNS):
                if self.held == 0 and not self.ended:
                    self.held = os.splice(self.source.fileno(), self.write_end, _PIECE, flags=os.SPLICE_F_NONBLOCK)
                    self.ended = self.held == 0
                if self.held == 0:
                    break
                self.held -= os.splice(self.read_end, self.sink.fileno(), self.held, flags=os.SPLICE_F_NONBLOCK)
        if self.ended and self.held == 0 and not self.finished:
            self.sink.shutdown(socket.SHUT_WR)
            self.finished = True

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self.write_end)


class Connection:
    """A client and a server, joined."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        client: socket.socket,
        server: socket.socket,
        on_end: Callable[[], None],
        inside: socket.socket,
    ):
        """``inside`` is the one of the two that is the sandbox's."""
        self._selector, self._on_end, self._inside = selector, on_end, inside
        self._over = False
        self._sockets = (client, server)
        self._flows = (_Flow(client, server), _Flow(server, client))
        for one in self._sockets:
            one.setblocking(False)
            with contextlib.suppress(OSError):  # it may be closed already, which the first move will show
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def owes(self) -> bool:
        """Whether something that the sandbox has sent may still have to be passed on."""
        return not self._over and not all(flow.finished for flow in self._flows if flow.source is self._inside)

    def advance(self, _: object = None) -> None:
        """Move bytes both ways, and wait for more."""
        if self._over:  # by the other socket, in the same turn
            return None
        there, back = self._flows
        try:
            there.advance()
            back.advance()
        except OSError:
            return self._end(abort)
        if there.finished and back.finished:
            return self._end(socket.socket.close)
        self._watch(there.source, reading=there, writing=back)
        self._watch(back.source, reading=back, writing=there)
        return None

    def _watch(self, one: socket.socket, *, reading: _Flow, writing: _Flow) -> None:
        wanted = (_READ if reading.held == 0 and not reading.ended else 0) | (_WRITE if writing.held else 0)
        known = self._selector.get_map().get(one)
        if known is None:
            if wanted:
                self._selector.register(one, wanted, self.advance)
        elif not wanted:
            self._selector.unregister(one)
        elif known.events != wanted:
            self._selector.modify(one, wanted, self.advance)

    def _end(self, close: Callable[[socket.socket], None]) -> None:
        self._over = True
        for one in self._sockets:
            if one in self._selector.get_map():
                self._selector.unregister(one)
            close(one)
        for flow in self._flows:
            flow.close()
        self._on_end()
