"""The two processes beside a run with a limited network: the relay, and its half inside.

Both are children of px.  They end with the run; when px is killed, they see its end of a pipe close.  The half inside
is forked before bubblewrap starts, because the target waits for what it makes.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px import console
from px.engines.network import inside
from px.engines.network.rules import Policy, Publish, parse_publish
from px.errors import PxError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from px.warm.spec import Reach


@contextmanager
def relay(reach: Reach) -> Iterator[Callable[[int], None]]:
    """A function that gives the sandbox with this first process its network; until then it must wait."""
    policy = Policy.of(reach.allow)
    orders = inside.plan(policy)
    published = [(_listener(p), p.inside) for p in map(parse_publish, reach.publish)]
    ours, theirs = (end.detach() for end in _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET))
    (lifeline_end, lifeline), (pid_end, pid_from), (ready, ready_end) = os.pipe(), os.pipe(), os.pipe()
    keep = [theirs, pid_end, ready_end]
    children = [_fork(lambda: _inside(theirs, orders, pid_end, ready_end), keep)]
    for end in keep:
        os.close(end)

    def serve() -> None:
        channel = _socket.socket(fileno=ours)
        if not _is_needed(channel, lifeline_end, [listener.fileno() for listener, _ in published]):
            return
        import socket

        from px.engines.network.relay import Relay

        made = Relay(policy, socket.socket(fileno=channel.detach()))
        made.prepare(orders, published)
        made.run(lifeline_end)

    def attach(pid: int) -> None:
        os.write(pid_from, str(pid).encode())
        children.append(_fork(serve, [ours, lifeline_end, *(listener.fileno() for listener, _ in published)]))
        said = os.read(ready, 4096).decode("utf-8", "replace")
        if said != "ready":
            problem = f"its network could not be set up: {said or 'the relay ended'}"
            raise PxError("PX906", engine="bubblewrap", problem=problem)

    try:
        yield attach
        if len(children) > 1 and os.waitid(os.P_PID, children[-1], os.WEXITED | os.WNOHANG | os.WNOWAIT):
            console.warn("the relay ended before the sandbox did, and its network with it; please report this")
    finally:
        for end in (ours, lifeline_end, lifeline, pid_from, ready):
            os.close(end)
        for listener, _ in published:
            listener.close()
        _end(children)


def _listener(publish: Publish) -> socket.socket:
    import socket

    try:
        family, kind, _, _, address = socket.getaddrinfo(publish.host, publish.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as e:
        value = f"{publish.host}:{publish.port}"
        raise PxError(
            "PX040", option="--publish", value=value, problem=e.strerror or str(e), example="--publish 8000"
        ) from e
    return listener


def _fork(work: Callable[[], None], keep: list[int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()  # what the terminal sends is for the target
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        _close_all_but({0, 1, 2, *keep})
        work()
    finally:
        os._exit(0)


def _close_all_but(keep: set[int]) -> None:
    # An end of somebody's pipe, kept here, would keep its reader waiting.
    known = sorted(keep)
    for low, high in zip(known, [*known[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def _is_needed(channel: _socket.socket, lifeline: int, published: list[int]) -> bool:
    """Wait until there is something to do for the relay; what happens meanwhile waits in the kernel."""
    waiting = select.poll()
    for fd in (channel.fileno(), lifeline, *published):
        waiting.register(fd, select.POLLIN)
    over = [fd for fd, _ in waiting.poll()] == [lifeline]
    channel.send(inside.END if over else inside.BEGIN)
    return bool(channel.recv(1, _socket.MSG_PEEK))


def _end(children: list[int]) -> None:
    """The relay, the last one, sees that it is over, and passes on and says what it still has."""
    last = os.pidfd_open(children[-1])
    waiting = select.poll()
    waiting.register(last, select.POLLIN)
    try:
        if len(children) > 1:
            waiting.poll()  # it gives up by itself if nothing moves
    finally:
        os.close(last)
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _inside(relay: int, orders: list[inside.Order], pid_end: int, ready: int) -> None:
    try:
        inside.serve(relay, orders, pid_end, ready)
    except (OSError, ValueError) as e:
        os.write(ready, str(e).encode())
