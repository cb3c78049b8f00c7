"""What runs inside a remote sandbox: it starts the task, keeps its log, and lets the launcher follow it.

The executor uploads this file with one line of payload appended, so it imports the standard library only.
The task runs apart from the command that started it: when the connection to the sandbox breaks, the task
goes on, and the launcher follows it again from the line it had reached.  Lines that begin with
``\\x1e`` are for the launcher (a heartbeat, or the task's exit code); all others are Metaflow log lines.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import datetime, timezone
from typing import Any

MARK = b"\x1e"
PAYLOAD_LINE = "# The payload follows.\n"
POLL = 0.05
HEARTBEAT = 5.0
STREAMS = ("stdout", "stderr")


def main(payload: Any = None) -> None:
    mode = sys.argv[1]
    if mode == "run":
        run(payload)
    elif mode == "follow":
        sys.exit(follow(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))


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
    if os.fork() == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        try:
            supervise(state, payload)
        finally:
            os._exit(0)
    sys.exit(follow(state, 0, 0))


def write(state: str, name: str, content: bytes) -> None:
    path = os.path.join(state, name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(content)


def supervise(state: str, payload: Any) -> None:
    """Run the script to its end or its time limit, write its log, and leave the exit code last of all."""
    work = os.path.join(state, "work")
    os.mkdir(work)
    env = dict(os.environ, **payload["env"])
    env["PX_STATE"] = state
    task = subprocess.Popen(
        ["bash", os.path.join(state, "task.sh")],
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    pumps = [
        threading.Thread(target=pump, args=(pipe, os.path.join(state, stream)), daemon=True)
        for stream, pipe in zip(STREAMS, (task.stdout, task.stderr))
    ]
    for thread in pumps:
        thread.start()
    result = wait(task, payload["limit"], os.path.join(state, "stderr"))
    for thread in pumps:
        # A process that the step left behind may hold the pipe open for ever.
        thread.join(timeout=5)
    write(state, "exit.tmp", json.dumps(result).encode())
    os.rename(os.path.join(state, "exit.tmp"), os.path.join(state, "exit"))


def wait(task: subprocess.Popen[bytes], limit: int, log: str) -> dict[str, Any]:
    try:
        code = task.wait(timeout=limit or None)
    except subprocess.TimeoutExpired:
        with open(log, "ab", buffering=0) as f:
            f.write(decorated(b"The task ran longer than its limit of %d seconds and was ended.\n" % limit))
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(task.pid, number)
                task.wait(timeout=5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        return {"exit": 1, "reason": "timeout"}
    return {"exit": code if code >= 0 else 128 - code}


def pump(pipe: Any, path: str) -> None:
    with open(path, "ab", buffering=0) as f:
        f.writelines(decorated(line) for line in pipe)


def decorated(line: bytes) -> bytes:
    """A line in Metaflow's log format; the time is when the task wrote it."""
    if not line.endswith(b"\n"):
        line += b"\n"
    if line.startswith(b"[MFLOG|"):
        return line
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"[MFLOG|0|{now}Z|task|{uuid.uuid4()}]".encode() + line


def follow(state: str, *seen: int) -> int:
    """Write the log as it grows, from the given lines on; then the exit code, marked, and end with it."""
    tails = [Tail(os.path.join(state, stream), skip) for stream, skip in zip(STREAMS, seen)]
    outputs = (sys.stdout.buffer, sys.stderr.buffer)
    beat = time.monotonic()
    while True:
        ended = os.path.exists(os.path.join(state, "exit"))
        for tail, output in zip(tails, outputs):
            lines = tail.read()
            if lines:
                output.write(lines)
                output.flush()
        if ended:
            break
        if time.monotonic() - beat >= HEARTBEAT:
            beat = time.monotonic()
            outputs[0].write(MARK + b"{}\n")
            outputs[0].flush()
        time.sleep(POLL)
    with open(os.path.join(state, "exit"), "rb") as f:
        record = f.read()
    outputs[0].write(MARK + record + b"\n")
    outputs[0].flush()
    return int(json.loads(record)["exit"])


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
