"""Runs one task in one remote sandbox: make it, start the task, stream its log, destroy it.

Three things can end a task: its own exit code, which is passed on as it is; a failure of the infrastructure,
which is retried a bounded number of times; or the end of the launcher, which takes the sandbox with it.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shlex
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins import task_runner
from metaflow_extensions.sandbox.plugins.backend import (
    BackendError,
    RateLimited,
    Refused,
    RemoteBackend,
    SandboxConfig,
    SandboxGone,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SILENCE = 20.0
"""Seconds without a heartbeat after which the provider is asked whether the sandbox still exists."""
WATCH = 0.5
RECONNECTS = 5
DESTROY_TRIES = 4
MARK = task_runner.MARK.decode()


class LauncherLostError(Exception):
    """The process that started this one, and wants its result, is gone."""


@dataclass(frozen=True)
class TaskSpec:
    """What the sandbox runs; ``env`` and ``files`` may be secret and reach it in the uploaded file only."""

    script: str
    env: Mapping[str, str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    time_limit: int = 0
    fetch: tuple[str, str] | None = None
    """Address and sha of the code package, where it can be fetched by its address alone; as secret as ``env``."""
    may_rerun: bool = True
    """Whether the task may be started again after its sandbox was lost: not with ``@retry(times=0)``."""


class SandboxExecutor:
    """One task's sandbox, from its making to its end."""

    def __init__(
        self,
        backend: RemoteBackend,
        config: SandboxConfig,
        *,
        say: Callable[[str], None],
        infra_retries: int,
        keep: Callable[[int, str], None] = lambda _stream, _line: None,
        parent: int | None = None,
    ):
        self._backend = backend
        self._config = config
        self._say = say
        self._infra_retries = infra_retries
        self._keep = keep
        self._parent = parent
        self.sandbox_id: str | None = None
        self._renewed = 0.0
        self._seen = [0, 0]
        self._started = False
        self._heard = 0.0
        self._exit: int | None = None
        self.metadata_key = ""
        """Where in the datastore the task left its local metadata."""

    def run(self, task: TaskSpec) -> int:
        """Run the task to its end and return its exit code; raise only for failures of the infrastructure."""
        for attempt in range(self._infra_retries + 1):
            try:
                self._launch(task)
                return self._wait()
            except Unavailable as e:
                left = self._infra_retries - attempt
                if not left or (self._started and not task.may_rerun):
                    raise
                self._say(f"{e.what} (not the step's own failure: trying again, {left} more)")
                self._pause(attempt, e.retry_after)
            finally:
                self.destroy()
        raise AssertionError("unreachable")

    def _launch(self, task: TaskSpec) -> None:
        self._seen, self._started, self._exit = [0, 0], False, None
        self.sandbox_id = self._create()
        self._renewed = time.monotonic()
        token = uuid.uuid4().hex
        self._state, self._file = f"/tmp/px-{token}", f"/tmp/px-{token}.py"  # noqa: S108 - in the sandbox, not here
        env = {**task.env, "METAFLOW_SANDBOX_ID": self.sandbox_id}
        self._backend.upload(self.sandbox_id, runner_file(task, env, self._state), self._file)
        self._started = True

    def _create(self) -> str:
        """Make the sandbox; where the account has no room, wait for some: the other tasks of a foreach make it."""
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
                    self._say(f"{e.what} (waiting for room, {seconds} seconds at most)")
                self._pause(attempt, e.retry_after or None)  # "at once" is no answer to ask again at once
        raise AssertionError("unreachable")

    def _wait(self) -> int:
        """Follow the task; where the stream breaks and the sandbox lives, follow it again from the line reached."""
        command = f"{_python()} {self._file} run"
        failures = 0
        while True:
            reached = list(self._seen)
            problem = self._stream(command)
            if self._exit is not None:
                return self._exit
            failures = 1 if self._seen != reached else failures + 1
            if failures > RECONNECTS:
                raise Unavailable(f"The connection to sandbox {self.sandbox_id} keeps breaking: {problem}")
            self._require_alive(problem)
            self._say(f"The connection to sandbox {self.sandbox_id} broke; following the task again.")
            self._pause(failures - 1, None)
            command = f"{_python()} {self._state}/runner.py follow {self._state} {self._seen[0]} {self._seen[1]}"

    def _stream(self, command: str) -> BackendError | None:
        """Run one following command; return what broke it, or None where it ended by itself."""
        lines: queue.Queue[tuple[int, str] | BackendError | None] = queue.Queue()
        thread = threading.Thread(target=self._exec, args=(command, lines), daemon=True)
        self._heard = watched = time.monotonic()
        thread.start()
        while True:
            # By the clock, not only when the task is silent: one that writes all the time has a lease too.
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

    def _exec(self, command: str, lines: queue.Queue[tuple[int, str] | BackendError | None]) -> None:
        out, err = (_Lines(stream, lines) for stream in (0, 1))
        try:
            self._backend.exec_script(str(self.sandbox_id), command, on_stdout=out, on_stderr=err)
            lines.put(None)
        except BackendError as e:
            lines.put(e)
        except Exception as e:  # noqa: BLE001 - a thread's exception would otherwise be lost, and the launcher hang
            lines.put(Unavailable(f"{type(e).__name__}: {e}"))

    def _line(self, stream: int, line: str) -> None:
        if line.startswith(MARK):
            record = json.loads(line[len(MARK) :])
            if "exit" in record:
                self._exit = int(record["exit"])
                self.metadata_key = str(record.get("metadata", ""))
            return
        self._seen[stream] += 1
        self._keep(stream, line)
        output = (sys.stdout, sys.stderr)[stream]
        output.write(line + "\n")
        output.flush()

    def _watch(self) -> None:
        """What must happen while the task runs: renew the lease, notice that either end is gone."""
        now = time.monotonic()
        if self._parent is not None and os.getppid() != self._parent:
            raise LauncherLostError
        if now - self._renewed > self._config.lease_seconds / 3:
            self._renewed = now
            try:
                self._backend.renew(str(self.sandbox_id), self._config.lease_seconds)
            except SandboxGone:
                raise
            except BackendError as e:
                self._say(f"The sandbox's lease could not be renewed yet: {e.what}")
        if now - self._heard > SILENCE:
            self._heard = now
            self._require_alive(None)

    def _require_alive(self, problem: BackendError | None) -> None:
        if isinstance(problem, SandboxGone):
            raise problem
        try:
            alive = self._backend.is_alive(str(self.sandbox_id))
        except Unavailable as e:
            self._say(e.what)
            return
        if not alive:
            raise SandboxGone(f"The {self._backend.name} sandbox {self.sandbox_id} died while the task was running.")

    def _pause(self, attempt: int, retry_after: float | None) -> None:
        end = time.monotonic() + (
            min(30.0, 0.5 * 2 ** min(attempt, 10)) if retry_after is None else min(retry_after, 120.0)
        )
        while time.monotonic() < end:
            if self._parent is not None and os.getppid() != self._parent:
                raise LauncherLostError
            time.sleep(0.1)

    def destroy(self) -> None:
        """End the sandbox and make sure that it is gone; what cannot be reached dies with its lease."""
        sandbox_id, self.sandbox_id = self.sandbox_id, None
        if sandbox_id is None:
            return
        problem = "it still runs"
        for attempt in range(DESTROY_TRIES):
            try:
                self._backend.destroy(sandbox_id)
                if not self._backend.is_alive(sandbox_id):
                    return
            except BackendError as e:
                problem = e.what
            time.sleep(0.1 * 2**attempt)
        self._say(
            f"The {self._backend.name} sandbox {sandbox_id} could not be destroyed ({problem}). It ends by itself in "
            f"{self._config.lease_seconds} seconds; or end it now: px sandbox reap --backend {self._backend.name}"
        )


class _Lines:
    """Cuts the chunks of one stream into lines."""

    def __init__(self, stream: int, lines: queue.Queue[tuple[int, str] | BackendError | None]):
        self._stream, self._lines, self._rest = stream, lines, ""

    def __call__(self, chunk: str) -> None:
        *whole, self._rest = (self._rest + chunk).split("\n")
        for line in whole:
            self._lines.put((self._stream, line))


def runner_file(task: TaskSpec, env: Mapping[str, str], state: str) -> bytes:
    """The runner's source with this task's payload behind it."""
    source = Path(task_runner.__file__).read_text(encoding="utf-8")
    payload = {
        "state": state,
        "script": task.script,
        "env": dict(env),
        "files": {name: base64.b64encode(content).decode() for name, content in task.files.items()},
        "limit": task.time_limit,
        "fetch": task.fetch,
    }
    return f"{source}\n\n{task_runner.PAYLOAD_LINE}main({payload!r})\n".encode()


def task_script(package_commands: list[str], download: str, bootstrap: list[str], step: str, datastore: str) -> str:
    """The bash script of a task: dependencies, code package, environment, step.

    Metaflow's own lines come escaped for a round through :mod:`shlex`, which they get here.  Its log commands
    are replaced: the runner decorates every line, and the launcher, which gets them all, keeps them.  ``download``,
    the part of them that gets the code package, is for where the runner could not fetch it.
    """
    from metaflow.mflog import BASH_FLUSH_LOGS, BASH_MFLOG

    skipped = (BASH_MFLOG, BASH_FLUSH_LOGS, "flush_mflogs")
    unpack = " && ".join(c for c in package_commands if c not in skipped)
    fetched = f'{{ mv "$PX_STATE/job.tar" job.tar 2>/dev/null || {_unescaped(download)}; }}'
    wanted = {"s3": ("boto3", "requests")}.get(datastore, ())
    probe = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in {wanted!r}))"
    missing = '[ -z "$METAFLOW_SKIP_INSTALL_DEPENDENCIES" ]'
    return "\n".join(
        [
            'mflog() { echo "$1"; }',
            'if ! command -v python >/dev/null; then mkdir -p "$PX_STATE/bin"',
            'ln -s "$(command -v python3)" "$PX_STATE/bin/python"; export PATH="$PX_STATE/bin:$PATH"; fi',
            'if [ -e "$PX_STATE/google.json" ]; then export GOOGLE_APPLICATION_CREDENTIALS="$PX_STATE/google.json"; fi',
            f"if {missing} && python -c {shlex.quote(probe)}; then export METAFLOW_SKIP_INSTALL_DEPENDENCIES=1; fi"
            if wanted
            else "",
            _unescaped(unpack).replace(_unescaped(download), fetched) + " || exit 1",
            'if [ -s "$PX_STATE/seed.tgz" ]; then tar xzf "$PX_STATE/seed.tgz"; fi',
            " && ".join([*(_unescaped(c) for c in bootstrap), step]),
            "exit $?",
        ]
    )


def _unescaped(command: str) -> str:
    return shlex.split(f'bash -c "{command}"')[-1]


def _python() -> str:
    # The runner needs nothing but the standard library, and no variable of the image may give it more.
    return "exec $(command -v python3 || command -v python) -I -S"
