"""The default engine: bubblewrap over the unpacked layers, without a daemon, an image or root."""

from __future__ import annotations

import os
import sys

from px.engines import arguments, binary, supervise
from px.engines.spec import Problem, RunSpec
from px.engines.streams import Streams
from px.errors import PxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from px.engines.limits import Group
    from px.engines.spec import AnyPath


class Bubblewrap:
    """Runs targets with bubblewrap; what it found out about the machine is kept in px's home."""

    name = "bubblewrap"

    def __init__(self, home: AnyPath):
        self._cache = os.path.join(home, "cache", "engines")
        self._answer: str | Problem | None = None

    @property
    def _found(self) -> str | Problem:
        if self._answer is None:
            self._answer = self._find()
        return self._answer

    def _find(self) -> str | Problem:
        if sys.platform != "linux":
            return Problem("bubblewrap is for Linux", ("Use docker or podman: px run --sandbox --engine docker …",))
        candidates = binary.candidates()
        identity = candidates.identity()
        known, _, path = self._remembered().partition("\n")
        if known == identity and path:
            return path
        found = binary.select(candidates)
        if isinstance(found, str):
            found = self._try(found) or found
        if isinstance(found, str):
            self._remember(f"{identity}\n{found}")
        return found

    def _try(self, path: str) -> Problem | None:
        from pathlib import Path

        from px.engines.diagnose import diagnose

        return diagnose(Path(path), Path(self._cache, "empty"))

    def _remembered(self) -> str:
        try:
            with open(os.path.join(self._cache, "bubblewrap"), encoding="utf-8") as f:
                return f.read()
        except (OSError, UnicodeDecodeError):
            return ""

    def _remember(self, text: str) -> None:
        from pathlib import Path

        from px.store.files import write_atomically

        try:
            write_atomically(Path(self._cache, "bubblewrap"), text.encode(), durable=False)
        except OSError:
            return  # a px home that cannot be written only makes the next start slower

    def problem(self) -> Problem | None:
        return self._found if isinstance(self._found, Problem) else None

    @property
    def binary(self) -> str:
        if isinstance(self._found, Problem):
            raise PxError("PX905", why=[self._found.reason], fix=self._found.fix)
        return self._found

    def run(
        self,
        spec: RunSpec,
        *,
        stdin: int | None = None,
        stdout: int | Callable[[bytes], None] | None = None,
        stderr: int | Callable[[bytes], None] | None = None,
    ) -> int:
        with Streams(stdin, stdout, stderr) as streams:
            return start(self.binary, self.prepared(spec), streams)

    def prepared(self, spec: RunSpec) -> RunSpec:
        """``spec`` with a layer of this user's own on top, where the layers belong to somebody else.

        Nobody can make a mount point in another user's directory, not even in an overlay of it; where two layers
        have a directory, the upper one says whose it is.
        """
        if not spec.layers or os.stat(spec.layers[-1]).st_uid == os.geteuid():
            return spec
        from pathlib import Path

        from px.engines.skeleton import ensure

        return spec._replace(layers=(*spec.layers, ensure(Path(self._cache, "skeleton"), spec)))

    def exec(self, spec: RunSpec) -> NoReturn:
        code = self.run(spec)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # nothing is left to do, and an orderly end of the interpreter takes milliseconds


def start(path: str, spec: RunSpec, streams: Streams) -> int:
    """Run ``spec`` with the bubblewrap at ``path``; the target's exit code."""
    group = _group(spec)
    fds = arguments.Descriptors()
    channel, init_end = os.pipe()
    info, info_end = os.pipe()
    try:
        fds.add(init_end)
        argv = arguments.command(spec, fds, channel=init_end)
        prefix = group.prefix if group is not None else ()
        argv = [*prefix, path, "--info-fd", fds.add(info_end), *argv]

        def after_fork(_: int) -> None:
            fds.close()
            streams.started()

        supervisor = supervise.Supervisor(lambda: supervise.first_process(info), spec.tty, streams.resize)
        environment = dict(os.environ) if prefix else {}
        command = supervise.Command(argv, environment, tuple(fds.fds), streams.fds)
        code = supervisor.run(command, after_fork)
        if not supervise.started(channel) and code < 128:
            raise supervise.failed_to_start("bubblewrap")
        return code
    finally:
        fds.close()
        os.close(channel)
        os.close(info)
        if group is not None:
            group.close()


def _group(spec: RunSpec) -> Group | None:
    if not spec.limits:
        return None
    from px.engines import limits

    return limits.group(spec.limits)
