"""The runner: the program that runs a task inside a remote sandbox.

The executor uploads this file with the task appended to it, so it imports only the standard library.  It forks:

* The supervisor runs the task and writes its log to files.  It does not depend on the connection to the sandbox.
* The follower prints the log as it grows.  If the connection breaks, the executor starts another follower, which goes
  on from the line that was reached.

A line that begins with ``\\x1e`` is for the executor: a heartbeat, or how the task ended.  All others are log lines.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone

TYPE_CHECKING = False
if TYPE_CHECKING:  # the constant of typing would cost every task an import
    from typing import Any

MARK = b"\x1e"
PAYLOAD_LINE = "# The payload follows.\n"
POLL = 0.05
HEARTBEAT = 5.0
STREAMS = ("stdout", "stderr")
RECORD = 4096
"""Bytes that are reserved for how the task ended, so that it can be written when the disk is full."""


def main(payload: Any = None) -> None:
    mode = sys.argv[1]
    if mode == "run":
        run(payload)
    elif mode == "follow":
        sys.exit(Follower(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).follow())


def run(payload: Any) -> None:
    """Unpack the payload, fork the supervisor, and follow it."""
    state = payload["state"]
    os.makedirs(state, mode=0o700)
    with open(__file__, encoding="utf-8") as f:
        source = f.read().split(PAYLOAD_LINE)[0]
    os.unlink(__file__)  # it holds the task's credentials
    write(state, "runner.py", (source + "main()\n").encode())
    write(state, "task.sh", payload["script"].encode())
    for name, content in payload["files"].items():
        write(state, name, base64.b64decode(content))
    for stream in STREAMS:
        write(state, stream, b"")
    write(state, "exit", b" " * RECORD)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    record = os.open(os.path.join(state, "exit"), os.O_WRONLY)
    fcntl.flock(record, fcntl.LOCK_EX)  # the supervisor holds this lock to its end, and so tells that it lives
    follower = Follower(state, 0, 0, woken)  # opens the files now, because the task could remove them
    if os.fork() == 0:
        os.close(woken)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        try:
            supervise(state, payload, wake, record)
        finally:
            os._exit(0)
    os.close(wake)
    os.close(record)
    sys.exit(follower.follow())


def write(state: str, name: str, content: bytes) -> None:
    path = os.path.join(state, name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(content)


def supervise(state: str, payload: Any, wake: int, record: int) -> None:
    """Run the script to its end or its time limit, write its log, and write how it ended last of all."""
    work = os.path.join(state, "work")
    os.mkdir(work)
    os.environ.update(payload["env"], PX_STATE=state)
    os.environ[payload["started"]] = "%.3f" % time.time()  # by this clock: another machine's may differ
    if payload["fetch"]:
        url, sha = payload["fetch"]
        fetch(url, sha, os.path.join(state, "job.tar"))
    logs = [open(os.path.join(state, stream), "ab", buffering=0) for stream in STREAMS]
    task = subprocess.Popen(
        ["bash", os.path.join(state, "task.sh")],
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    pumps = [
        threading.Thread(target=pump, args=(pipe, log, wake), daemon=True)
        for pipe, log in zip((task.stdout, task.stderr), logs)
    ]
    for thread in pumps:
        thread.start()
    result = wait(task, payload["limit"], logs[1])
    for thread in pumps:
        # A process that the step has left behind may hold the pipe open for ever.
        thread.join(timeout=5)
    if not leave(record, {**result, "metadata": content(os.path.join(state, "metadata"))}):
        leave(record, result)


def leave(record: int, result: dict[str, Any]) -> bool:
    """Write how the task ended, into the file that has been open since before the task could remove it."""
    data = json.dumps(result).encode().ljust(RECORD)
    try:
        os.ftruncate(record, RECORD)  # removes what is left of a longer record that did not fit
        return os.pwrite(record, data, 0) == len(data)
    except OSError:
        return False


def fetch(url: str, sha: str, path: str) -> None:
    """Fetch the code package.  Metaflow's own command would start Python and boto3 first; it runs if this fails."""
    import hashlib
    import urllib.request
    from http.client import HTTPException

    try:
        digest = hashlib.sha1()  # noqa: S324 - Metaflow's name for the package
        with urllib.request.urlopen(url, timeout=10) as answer, open(path + ".part", "wb") as f:  # noqa: S310 - ours
            while True:
                data = answer.read(1 << 20)
                if not data:
                    break
                digest.update(data)
                f.write(data)
        if digest.hexdigest() == sha:
            os.rename(path + ".part", path)
    except (OSError, ValueError, HTTPException):
        return


def content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


def wait(task: subprocess.Popen[bytes], limit: int, log: Any) -> dict[str, Any]:
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        with suppress(OSError):  # even if the disk is full, the task must end
            log.write(decorated(b"The task ran longer than its limit of %d seconds and was ended.\n" % limit))
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(task.pid, number)
            except ProcessLookupError:
                return
            time.sleep(5)

    # A timer, because task.wait(timeout) asks again and again, with pauses, and would see the end late.
    timer = threading.Timer(limit, expire)
    timer.daemon = True
    if limit:
        timer.start()
    code = task.wait()
    timer.cancel()
    if expired.is_set():
        return {"exit": 1, "reason": "timeout"}
    return {"exit": code if code >= 0 else 128 - code}


def pump(pipe: Any, log: Any, wake: int) -> None:
    for line in pipe:
        try:
            log.write(decorated(line))
            os.write(wake, b".")
        except OSError:  # the disk is full, or nobody follows; the task must wait for neither
            continue


def decorated(line: bytes) -> bytes:
    """A line in Metaflow's log format, with the time at which the task wrote it."""
    if not line.endswith(b"\n"):
        line += b"\n"
    if line.startswith(b"[MFLOG|"):
        return line
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"[MFLOG|0|{now}Z|task|{os.urandom(16).hex()}]".encode() + line


class Follower:
    """Prints the log as it grows, from the given lines on, then how the task ended.

    The supervisor writes to the pipe ``woken`` whenever there is more to print.  Only the first follower has that
    pipe; later ones look at the files again and again.
    """

    def __init__(self, state: str, out: int, err: int, woken: int | None = None):
        self.exit = os.open(os.path.join(state, "exit"), os.O_RDONLY)
        self.tails = [Tail(os.path.join(state, stream), skip) for stream, skip in zip(STREAMS, (out, err))]
        self.woken = woken

    def follow(self) -> int:
        outputs = (sys.stdout.buffer, sys.stderr.buffer)
        beat = time.monotonic()
        while True:
            ended = is_free(self.exit)
            for tail, output in zip(self.tails, outputs):
                say(output, tail.read())
            if ended:
                break
            if time.monotonic() - beat >= HEARTBEAT:
                beat = time.monotonic()
                say(outputs[0], MARK + b"{}\n")
            self.sleep()
        record = os.pread(self.exit, os.fstat(self.exit).st_size, 0).strip()
        if not record:
            text = b"The supervisor of the task was killed: by the task itself, or because memory ran out."
            say(outputs[1], decorated(text))
            record = b'{"exit": 1}'
        say(outputs[0], MARK + record + b"\n")
        return int(json.loads(record)["exit"])

    def sleep(self) -> None:
        if self.woken is None:
            time.sleep(POLL)
        elif select.select([self.woken], [], [], HEARTBEAT)[0] and not os.read(self.woken, 65536):
            self.woken = None  # the supervisor has ended


def say(output: Any, data: bytes) -> None:
    if data:
        output.write(data)
        output.flush()


def is_free(file: int) -> bool:
    """Whether the supervisor is gone: it holds the lock of this file as long as it lives."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class Tail:
    """The complete lines of a growing file, after the first ``skip`` of them."""

    def __init__(self, path: str, skip: int):
        self.file = open(path, "rb")
        self.rest = b""
        for _ in range(skip):
            self.file.readline()

    def read(self) -> bytes:
        data = self.rest + self.file.read()
        cut = data.rfind(b"\n") + 1
        self.rest = data[cut:]
        return data[:cut]
