"""What runs inside a remote sandbox: it starts the task, keeps its log, and lets the launcher follow it.

The executor uploads this file with one line of payload appended, so it imports the standard library only.
The task runs apart from the command that started it: when the connection to the sandbox breaks, the task
goes on, and the launcher follows it again from the line it had reached.  Lines that begin with
``\\x1e`` are for the launcher (a heartbeat, or the task's exit code); all others are Metaflow log lines.
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
if TYPE_CHECKING:  # typing itself is not free, and this starts with every task
    from typing import Any

MARK = b"\x1e"
PAYLOAD_LINE = "# The payload follows.\n"
POLL = 0.05
HEARTBEAT = 5.0
STREAMS = ("stdout", "stderr")
RECORD = 4096
"""Bytes kept for the task's end, so that there is room for it, if not for metadata, when the disk is full."""


def main(payload: Any = None) -> None:
    mode = sys.argv[1]
    if mode == "run":
        run(payload)
    elif mode == "follow":
        sys.exit(Follower(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).follow())


def run(payload: Any) -> None:
    """Unpack the payload, start the task in a process of its own, and follow it."""
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
    fcntl.flock(record, fcntl.LOCK_EX)  # the supervisor's, from here to its end: who can lock it knows that it is gone
    follower = Follower(state, 0, 0, woken)  # opens what it reads before there is a task that could remove it
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
    """Run the script to its end or its time limit, write its log, and leave the exit code last of all."""
    work = os.path.join(state, "work")
    os.mkdir(work)
    os.environ.update(payload["env"], PX_STATE=state)
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
        # A process that the step left behind may hold the pipe open for ever.
        thread.join(timeout=5)
    if not leave(record, {**result, "metadata": content(os.path.join(state, "metadata"))}):
        leave(record, result)


def leave(record: int, result: dict[str, Any]) -> bool:
    """Write the task's end where the followers read it: open since the start, the task may have removed its name."""
    data = json.dumps(result).encode().ljust(RECORD)
    try:
        os.ftruncate(record, RECORD)  # of a longer one, there may have been room for a part
        return os.pwrite(record, data, 0) == len(data)
    except OSError:
        return False


def fetch(url: str, sha: str, path: str) -> None:
    """The code package, without the start of Python and boto3 that Metaflow's own command needs; that one runs where
    this does not succeed."""
    import hashlib
    import urllib.request

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
    except (OSError, ValueError):
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
        with suppress(OSError):  # the disk is full: it ends all the same
            log.write(decorated(b"The task ran longer than its limit of %d seconds and was ended.\n" % limit))
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(task.pid, number)
            except ProcessLookupError:
                return
            time.sleep(5)

    # A timer, because waiting with a timeout means asking again and again: the end would be seen late.
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
        except OSError:  # the disk is full, or the follower is busy or gone: the task must not wait for either
            continue


def decorated(line: bytes) -> bytes:
    """A line in Metaflow's log format; the time is when the task wrote it."""
    if not line.endswith(b"\n"):
        line += b"\n"
    if line.startswith(b"[MFLOG|"):
        return line
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"[MFLOG|0|{now}Z|task|{os.urandom(16).hex()}]".encode() + line


class Follower:
    """Writes the log as it grows, from the given lines on; then the exit code, marked, with which it ends.

    ``woken`` has something to read whenever there is more to write, and ends with the supervisor; the first follower
    has it, later ones look again and again.
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
            text = b"What watched over the task in the sandbox was killed: by the task, or for memory."
            say(outputs[1], decorated(text))
            record = b'{"exit": 1}'
        say(outputs[0], MARK + record + b"\n")
        return int(json.loads(record)["exit"])

    def sleep(self) -> None:
        if self.woken is None:
            time.sleep(POLL)
        elif select.select([self.woken], [], [], HEARTBEAT)[0] and not os.read(self.woken, 65536):
            self.woken = None  # the supervisor has ended: the exit code is there now


def say(output: Any, data: bytes) -> None:
    if data:
        output.write(data)
        output.flush()


def is_free(file: int) -> bool:
    """Whether the supervisor, which holds this file's lock as long as it lives, is gone."""
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
