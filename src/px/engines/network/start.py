"""The two processes beside a run with a limited network: the relay, and its half inside.

Both are children of px, forked before bubblewrap starts, so that they import what they need meanwhile.  They end with
the run; when px is killed, they see its end of a pipe close.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px import console
from px.engines.network.rules import Policy, Publish, parse_publish
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from px.warm.spec import Reach


@contextmanager
def relay(reach: Reach) -> Iterator[Callable[[int], None]]:
    """A function that gives the sandbox with this first process its network; until then it must wait."""
    policy = Policy.of(reach.allow)
    published = [(_listener(p), p.inside) for p in map(parse_publish, reach.publish)]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lifeline_end, lifeline = os.pipe()
    ready, ready_end = os.pipe()
    children = [_fork(lambda: _inside(theirs), [theirs.fileno()])]
    keep = [ours.fileno(), lifeline_end, ready_end, *(listener.fileno() for listener, _ in published)]
    children.append(_fork(lambda: _relay(policy, published, ours, lifeline_end, ready_end), keep))
    for end in (ours, theirs, *(listener for listener, _ in published)):
        end.close()
    os.close(lifeline_end)
    os.close(ready_end)

    def attach(pid: int) -> None:
        os.write(lifeline, str(pid).encode())
        said = os.read(ready, 4096).decode("utf-8", "replace")
        if said != "ready":
            problem = f"its network could not be set up: {said.strip() or 'the relay ended'}"
            raise PxError("PX906", engine="bubblewrap", problem=problem)

    try:
        yield attach
        if os.waitpid(children[-1], os.WNOHANG)[0]:
            children.pop()
            console.warn("the relay ended before the sandbox did, and its network with it; please report this")
    finally:
        os.close(lifeline)
        os.close(ready)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _listener(publish: Publish) -> socket.socket:
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


def _inside(channel: socket.socket) -> None:
    from px.engines.network import inside  # here and below: imported in the child, while bubblewrap starts

    try:
        inside.serve(channel)
    except OSError as e:
        channel.send(str(e).encode())


def _relay(
    policy: Policy, published: list[tuple[socket.socket, int]], channel: socket.socket, lifeline: int, ready: int
) -> None:
    from px.engines.network.relay import Relay

    try:
        made = Relay(policy, channel)
        if not (pid := os.read(lifeline, 32)):
            return
        channel.send(pid)
        said = channel.recv(4096)
        if said == b"ready":
            made.prepare(published)
    except OSError as e:
        said = str(e).encode()
    os.write(ready, said)
    if said == b"ready":
        made.run(lifeline)
