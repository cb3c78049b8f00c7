"""What Metaflow starts for a task of a remote step: a stand-in for a launcher that the run's launch server forks.

Run as ``python -I -S launch_client.py NAME COMMAND…``, where the command is the launcher as it would start by itself.
It hands its streams, environment and command to the server, passes signals on, and ends as the launcher ended.  Where
no server answers, it becomes the command.  It lives as long as the task does, and starts for every task, so it imports
next to nothing.
"""

from __future__ import annotations

import _socket
import marshal
import os
import signal
import sys

ACCEPTED = b"+"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(name: str, command: list[str]) -> None:
    connection = _accepted(name, command)
    if connection is None:
        os.execv(command[0], command)

    # Python writes the number of a signal there at once; a handler would wait for the end of whatever call it came
    # just before.  That needs a descriptor which does not block: hence a time limit, which means nothing.
    connection.settimeout(3600)
    signal.set_wakeup_fd(connection.fileno())
    for number in SIGNALS:
        signal.signal(number, _nothing)
    while True:
        try:
            _end(connection.recv(4))
        except TimeoutError:
            continue


def _nothing(_number: int, _frame: object) -> None:
    """Be there: a signal without a handler would end this process."""


def _accepted(name: str, command: list[str]) -> _socket.socket | None:
    """The connection to a launcher that has begun, or None."""
    request = marshal.dumps((command, dict(os.environ), os.getcwd()))
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.connect(f"\0{name}")
        if not same_user(connection):
            return None
        streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
        connection.sendmsg([len(request).to_bytes(4, "big")], rights)
        connection.sendall(request)
        return connection if connection.recv(1) == ACCEPTED else None
    except OSError:
        return None


def same_user(connection: _socket.socket) -> bool:
    """Names of sockets can be seen, and taken when they are free, by every user of a machine."""
    _pid, uid, _gid = memoryview(connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)).cast("i")
    return bool(uid == os.getuid())


def _end(status: bytes) -> None:
    """End with the status, as ``wait`` tells it, of the launcher: Metaflow tells signals from exit codes."""
    if len(status) < 4:
        sys.stderr.write("The launcher of this task was killed.\n")
        os._exit(1)
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:
        if -code != signal.SIGKILL:  # for which nobody can have a handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
