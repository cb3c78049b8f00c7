"""Runs one task in a remote sandbox: make the sandbox, start the task, stream its log, destroy the sandbox.

A task ends in one of three ways.  It exits, and its exit code is passed on as it is.  The infrastructure fails, and the
task is tried again a bounded number of times.  Or the run ends first, and takes the sandbox with it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import uuid
from itertools import count
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins import settings
from metaflow_extensions.sandbox.plugins.errors import BackendError, RateLimited, Refused, SandboxGone, Unavailable
from metaflow_extensions.sandbox.plugins.remote import runner
from metaflow_extensions.sandbox.plugins.remote.task import runner_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from metaflow_extensions.sandbox.plugins.backend import RemoteBackend, SandboxConfig
    from metaflow_extensions.sandbox.plugins.remote.task import TaskSpec

    Lines = queue.Queue[tuple[int, str] | BackendError | None]
    """Stream and line; or what broke the stream; or None at its end."""

# Seconds without a heartbeat after which the provider is asked whether the sandbox still exists. Heartbeats come
# every five seconds, so this many are not lost by chance.
SILENCE = 20.0
WATCH = 0.5
# How often a stream may break without one new line in between.
RECONNECTS = 5
DESTROY_TRIES = 4
MARK = runner.MARK.decode()


class RunLostError(Exception):
    """The run that wants the result of this task is gone."""


class SandboxExecutor:
    """One task's sandbox, from its making to its end."""

    def __init__(
        self,
        backend: RemoteBackend,
        config: SandboxConfig,
        *,
        infra_retries: int,
        keep: Callable[[int, str], None] = lambda _stream, _line: None,
        parent: int | None = None,
    ):
        """``keep`` gets every line of the log; ``parent`` is the process whose end is the end of the run."""
        self._backend, self._config = backend, config
        self._infra_retries, self._keep, self._parent = infra_retries, keep, parent
        self.sandbox_id: str | None = None
        self.metadata_key = ""
        """Where in the datastore the task left its local metadata."""
        self._seen = [0, 0]
        """The lines of each stream that have arrived."""
        self._started = False
        self._exit: int | None = None
        self._renewed = self._heard = 0.0

    def run(self, task: TaskSpec) -> int:
        """Run the task to its end and return its exit code.  An exception is a failure of the infrastructure."""
        for attempt in range(self._infra_retries + 1):
            try:
                self.launch(task)
                return self.wait()
            except Unavailable as e:
                left = self._infra_retries - attempt
                # Once the task may have begun, its side effects may have happened.
                if self._started and not task.may_rerun:
                    e.fix = (*e.fix, "The step may have run, so px does not start it again. Allow that with @retry")
                    raise
                if not left:
                    raise
                _say(f"{e.what} (This is no failure of the step. Trying again, at most {left} times.)")
                self._pause(attempt, e.retry_after)
            finally:
                self.destroy()
        raise AssertionError("unreachable")

    def launch(self, task: TaskSpec) -> None:
        """Make a sandbox and upload the task."""
        self._seen, self._started, self._exit = [0, 0], False, None
        asked = time.monotonic()
        self.sandbox_id = self._create()
        self._renewed = time.monotonic()
        # In a directory that nobody can guess: an image may have other users, and the file has credentials.
        token = uuid.uuid4().hex
        self._state, self._file = f"/tmp/px-{token}", f"/tmp/px-{token}.py"  # noqa: S108 - in the sandbox, not here
        took = f"{self._renewed - asked:.3f}"
        env = {**task.env, settings.SANDBOX_ID: self.sandbox_id, settings.CREATE_TOOK: took}
        self._backend.upload(self.sandbox_id, runner_file(task, env, self._state), self._file)

    def _create(self) -> str:
        """Make the sandbox.  If the account has no room, wait: other tasks of the run may end and make some."""
        seconds = self._config.create_seconds
        end = time.monotonic() + seconds
        for attempt in count():
            try:
                return self._backend.create(self._config)
            except RateLimited as e:
                if time.monotonic() > end:
                    fix = ["Run fewer tasks at once: --max-workers N", "Wait longer: METAFLOW_SANDBOX_CREATE_SECONDS=N"]
                    raise Refused(f"{e.what} (for {seconds} seconds)", fix=fix) from e
                if not attempt:
                    _say(f"{e.what} (Waiting for room, {seconds} seconds at most.)")
                self._pause(attempt, e.retry_after or None)  # if it says 0 seconds, make a pause all the same
        raise AssertionError("unreachable")

    def wait(self) -> int:
        """Follow the task.  If the stream breaks and the sandbox lives, follow it again from the line reached."""
        run = command = f"{_python()} {self._file} run"
        failures = 0
        self._started = True
        while True:
            reached = list(self._seen)
            problem = self._stream(command)
            if self._exit is not None:
                return self._exit
            # A stream that broke after new lines starts the count again: a long task may see many breaks.
            failures = 1 if self._seen != reached else failures + 1
            if failures > RECONNECTS:
                raise Unavailable(f"The connection to sandbox {self.sandbox_id} keeps breaking: {problem}")
            self._require_alive(problem)
            _say(f"The connection to sandbox {self.sandbox_id} broke; following the task again.")
            self._pause(failures - 1, None)
            follow = f"{_python()} {self._state}/runner.py follow {self._state} {self._seen[0]} {self._seen[1]}"
            # The first command may never have arrived. The runner makes this directory first, and only one can.
            command = f"if [ -d {self._state} ]; then {follow}; else {run}; fi"

    def _stream(self, command: str) -> BackendError | None:
        """Run one command that prints the log; return what broke it, or None if it ended by itself."""
        # The SDK's call blocks in a thread of its own, so that this one can renew the lease and notice its end.
        lines: Lines = queue.Queue()
        thread = threading.Thread(target=self._exec, args=(command, lines), daemon=True)
        self._heard = watched = time.monotonic()
        thread.start()
        while True:
            # By the clock, and not only when the queue is empty: a task that writes all the time has a lease, too.
            if time.monotonic() - watched >= WATCH:
                watched = time.monotonic()
                self._watch()
            try:
                item = lines.get(timeout=WATCH)
            except queue.Empty:
                continue
            if item is None or isinstance(item, BackendError):
                return item
            self._heard = time.monotonic()
            self._line(*item)

    def _exec(self, command: str, lines: Lines) -> None:
        out, err = (_Lines(stream, lines) for stream in (0, 1))
        try:
            self._backend.exec_script(str(self.sandbox_id), command, on_stdout=out, on_stderr=err)
            lines.put(None)
        except BackendError as e:
            lines.put(e)
        except Exception as e:  # noqa: BLE001 - a thread's exception would be lost, and the main thread would wait
            lines.put(Unavailable(f"{type(e).__name__}: {e}"))

    def _line(self, stream: int, line: str) -> None:
        if line.startswith(MARK):
            self._note(line[len(MARK) :])
            return
        # Counted and kept before it is printed: a follower that comes later goes on after this line.
        self._seen[stream] += 1
        self._keep(stream, line)
        # As bytes: the run reads UTF-8, whatever the locale is.
        output = (sys.stdout, sys.stderr)[stream]
        output.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")
        output.flush()

    def _note(self, text: str) -> None:
        """A heartbeat, or how the task ended.  The runner writes it where the task can write, too."""
        try:
            record = json.loads(text)
            if "exit" in record:
                self._exit = int(record["exit"]) & 0xFF
                self.metadata_key = str(record.get("metadata", ""))
        except (ValueError, TypeError, OverflowError, RecursionError):
            _say("The task wrote over the record of its end, so it counts as failed.")
            self._exit = 1

    def _watch(self) -> None:
        """What must happen while the task runs: renew the lease, and notice when the run or the sandbox is gone."""
        self._require_run()
        now = time.monotonic()
        # At a third of the lease, so that two renewals can fail before the sandbox ends.
        if now - self._renewed > self._config.lease_seconds / 3:
            self._renewed = now
            try:
                self._backend.renew(str(self.sandbox_id), self._config.lease_seconds)
            except SandboxGone:
                raise
            except BackendError as e:
                _say(f"The sandbox's lease could not be renewed yet: {e.what}")
        if now - self._heard > SILENCE:
            self._heard = now
            self._require_alive(None)

    def _require_alive(self, problem: BackendError | None) -> None:
        if isinstance(problem, SandboxGone):
            raise problem
        try:
            alive = self._backend.is_alive(str(self.sandbox_id))
        except Unavailable as e:  # the provider does not answer, which does not mean that the sandbox is gone
            _say(e.what)
            return
        if not alive:
            raise SandboxGone(f"The {self._backend.name} sandbox {self.sandbox_id} died while the task was running.")

    def _require_run(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            raise RunLostError

    def _pause(self, attempt: int, retry_after: float | None) -> None:
        seconds = min(30.0, 0.5 * 2 ** min(attempt, 10)) if retry_after is None else min(retry_after, 120.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._require_run()
            time.sleep(0.1)

    def destroy(self) -> None:
        """End the sandbox and make sure that it is gone.  If that fails, it ends with its lease."""
        sandbox_id, self.sandbox_id = self.sandbox_id, None
        if sandbox_id is None:
            return
        problem = "it still runs"
        for attempt in range(DESTROY_TRIES):
            try:
                self._backend.destroy(sandbox_id)
                # Ask again, because a provider may accept a deletion and lose it.
                if not self._backend.is_alive(sandbox_id):
                    return
            except BackendError as e:
                problem = e.what
            time.sleep(0.1 * 2**attempt)
        _say(
            f"The {self._backend.name} sandbox {sandbox_id} could not be destroyed ({problem}). It ends by itself in "
            f"{self._config.lease_seconds} seconds; or end it now: px sandbox reap --backend {self._backend.name}"
        )


class _Lines:
    """Cuts the chunks of one stream into lines."""

    def __init__(self, stream: int, lines: Lines):
        self._stream, self._lines, self._rest = stream, lines, ""

    def __call__(self, chunk: str) -> None:
        *whole, self._rest = (self._rest + chunk).split("\n")
        for line in whole:
            self._lines.put((self._stream, line))


def _say(text: str) -> None:
    sys.stderr.write(f"{settings.shown(text)}\n")
    sys.stderr.flush()


def _python() -> str:
    # -I -S: the runner needs only the standard library, and variables of the image must not add to it.
    # A project's image has one of its own, which a login shell may not find.
    return "exec $(command -v python3 || command -v python || echo /opt/px/env/bin/python) -I -S"
