"""The first look at a command line: what a warm run can serve is served here, everything else by :mod:`px.cli`."""

from __future__ import annotations

import os
import sys

from px.warm import record
from px.warm.hold import hold_across_exec, use_lock
from px.warm.spec import APP, HOME, Frozen, Mount, RunSpec
from px.warm.target import InSandbox, OnHost, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from px.warm.record import BuiltHost, BuiltSandbox

# Of the host's environment only what a terminal program needs to draw.
_PASSED = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
_QUIET = ("-q", "--quiet")
CACHE = f"{HOME}/.cache"
# Places in the cache for those that do not ask for XDG_CACHE_HOME, or would use the package's directory or /tmp.
_CACHES = {
    "CUDA_CACHE_PATH": "nv",
    "CUPY_CACHE_DIR": "cupy",
    "MPLCONFIGDIR": "matplotlib",
    "SCIKIT_LEARN_DATA": "scikit-learn",
    "TIKTOKEN_CACHE_DIR": "tiktoken",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
}


class Ended(Frozen):
    """How a command line that was served here ended."""

    code: int
    said: str = ""
    """The end of what a target in a sandbox said on standard error."""
    built: BuiltSandbox | None = None


def serve(argv: Sequence[str]) -> Ended | None:
    """Serve a command line without flags of its own, if nothing changed; None if there is anything to do or to say."""
    try:
        job = _job(argv)
    except Exception:  # noqa: BLE001 - the full look will say what is wrong
        return None
    try:
        return job() if job is not None else None
    except OSError:
        return None  # a sandbox that could not be started; one that was, and could not be watched, is ended by then


def _job(argv: Sequence[str]) -> Callable[[], Ended | None] | None:
    """What is left to do, once it is certain that nothing changed."""
    if argv[:1] == ["sync"]:
        flags = [word for word in argv[1:] if word not in _QUIET]
        if flags in ([], ["--sandbox"]):
            return _sync(record.SANDBOX if flags else record.HOST, quiet=len(flags) != len(argv) - 1)
    if argv[:2] == ["run", "--sandbox"] and len(argv) > 2 and not argv[2].startswith("-"):
        return _run_in_sandbox(argv[2], argv[3:])
    if argv[:1] == ["run"] and len(argv) > 1 and not argv[1].startswith("-"):
        _run_on_host(argv[1], argv[2:])
    return None


def _sync(target: str, *, quiet: bool) -> Callable[[], Ended] | None:
    found = record.find(record.here(), target)
    if found is None or not found[0]["name"]:
        return None
    raw, built = found
    link = os.path.join(raw["root"], ".px", "envs", "current")
    if target == record.HOST and os.readlink(link) != built.directory:
        return None

    def job() -> Ended:
        if not quiet:
            sys.stderr.write(f"{raw['name']}: already up to date\n")
        return Ended(0)

    return job


def _run_on_host(target: str, arguments: Sequence[str]) -> None:
    found = record.find(record.here(), record.HOST)
    if found is not None:
        become(target, arguments, found[1])  # type: ignore[arg-type]


def become(target: str, arguments: Sequence[str], built: BuiltHost) -> str | None:
    """Replace px by the target: signals, standard input and the exit code are then its own without any relay.

    Returns only if that fails: None if there is no such target, else the reason.
    """
    binaries = os.path.join(built.directory, "bin")
    environment = {**os.environ, **built.variables, "VIRTUAL_ENV": built.directory}
    environment.pop("PYTHONHOME", None)
    environment["PATH"] = binaries + os.pathsep + environment.get("PATH", os.defpath)
    command = resolve(target, arguments, OnHost(binaries, environment["PATH"]))
    if command is None:
        return None
    hold_across_exec(use_lock(built.directory))
    try:
        os.execve(command[0], command, environment)
    except OSError as e:
        return e.strerror or str(e)


def _run_in_sandbox(target: str, arguments: Sequence[str]) -> Callable[[], Ended | None] | None:
    if os.environ.get("PX_ENGINE") or os.environ.get("PX_EXTRA_CA"):
        return None
    found = record.find(record.here(), record.SANDBOX)
    if found is None:
        return None
    built: BuiltSandbox = found[1]  # type: ignore[assignment]
    network = found[0].get("network", {})
    if network not in ({}, {"mode": "host"}, {"mode": "none"}):
        return None  # the relay is no part of the warm half
    if found[0].get("gpu"):
        return None  # nor is what finds GPUs
    place = InSandbox(built)
    command = resolve(target, arguments, place)
    if command is None or place.lacks_interpreter(target):
        return None
    # Only here, because a run on this machine has no use for them.
    from px.warm import bubblewrap
    from px.warm.streams import Streams, Tail

    path = bubblewrap.remembered(record.home_root(), bubblewrap.candidates())
    spec = project_spec(built, command).replace(network=network != {"mode": "none"})
    if path is None or not bubblewrap.is_own(spec):
        return None
    hold_across_exec(use_lock(built.directory))
    tail = Tail()

    def job() -> Ended | None:
        with Streams(None, None, tail) as streams:
            code = bubblewrap.start(path, spec, streams)
        return None if code is None else Ended(code, tail.text, built)

    return job


def siblings(built: BuiltSandbox) -> tuple[Mount, ...]:
    """The projects beside this one that it depends on: live, and read-only.

    Files that a target can write to name them, and a target must not get at another project so.
    """
    return tuple(Mount(source, inside, True) for inside, source in built.siblings.items())


def project_spec(
    built: BuiltSandbox, command: Sequence[str], env: Mapping[str, str] | None = None, *, use_cache: bool = True
) -> RunSpec:
    """One run of one command in a project's sandbox, without anything else that flags would ask for."""
    from px.warm.places import arrange  # only here, because a run on this machine has no use for it

    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    kept = _cache_mounts(built) if use_cache else ()
    found = _cache_variables(built) if kept else {}
    tree = Mount(built.root, APP, built.read_only)
    mounts, hidden = arrange(tree, siblings(built), record.home_root(), git_write=built.git_write)
    return RunSpec(
        layers=built.layers,
        argv=tuple(command),
        env={**passed, "HOME": HOME, "USER": "px", **found, **built.variables, **(env or {})},
        cwd=InSandbox(built).inside(os.getcwd()) or APP,
        mounts=(*kept, *mounts),
        hidden=hidden,
        tty=any(os.isatty(fd) for fd in (0, 1, 2)),
        label=built.sbx_id,
    )


def _cache_mounts(built: BuiltSandbox) -> tuple[Mount, ...]:
    """The project's cache, a directory under ``PX_HOME`` that outlives runs; none where that cannot be written.

    Everything in its ``files`` is written by the sandbox.  So px only makes it, says when it was used, holds it while
    the target runs, and removes it (:mod:`px.store.gc`); nothing of px ever reads in it.  No image has it.
    """
    name = record.record_name(built.root).removesuffix(".json")
    directory = os.path.join(record.home_root(), "caches", name)
    files = os.path.join(directory, "files")
    try:
        os.makedirs(files, 0o700, exist_ok=True)
        os.utime(directory)
    except OSError:
        return ()
    hold_across_exec(use_lock(directory))
    return (Mount(files, CACHE),)


def _cache_variables(built: BuiltSandbox) -> dict[str, str]:
    own = {name: f"{CACHE}/{place}" for name, place in _CACHES.items()}
    # numba tells versions of a file by its time, and in an image all files have the same one.
    return {"XDG_CACHE_HOME": CACHE, "NUMBA_CACHE_DIR": f"{CACHE}/numba/{built.profile_oid[:16]}", **own}
