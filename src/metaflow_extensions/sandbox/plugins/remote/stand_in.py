"""The stand-in: what Metaflow starts for a remote task while the fork server runs the trampoline.

It is run as ``python -I -S stand_in.py SOCKET COMMAND…``, where COMMAND is the trampoline.  It hands its standard
streams to the fork server, waits for the trampoline that the server forks, and ends as that ended.  If no server
answers, it becomes the command itself.  It starts for every task, so it imports almost nothing.
"""

from __future__ import annotations

import _socket
import os
import signal
import sys

ACCEPTED = b"+"


def main(path: str, command: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process without a traceback
    connection = _accepted(path)
    if connection is None:
        os.execv(command[0], command)
    status = connection.recv(4)
    if len(status) < 4:
        sys.stderr.write("The fork server of this run was killed.\n")
        os._exit(1)
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:  # Metaflow tells a segmentation fault from an exit code
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -code)
    os._exit(code)


def _accepted(path: str) -> _socket.socket | None:
    """The connection to a trampoline that has begun, or None."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    try:
        connection.connect(path)
        connection.sendmsg([ACCEPTED], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
        return connection if connection.recv(1) == ACCEPTED else None
    except OSError:
        return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
