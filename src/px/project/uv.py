"""Driving uv, which does all resolving: finding it, running it, and saying what went wrong in its words."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from px import console, online, process
from px.errors import PxError
from px.warm.places import program
from px.warm.record import home_root

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Settings of a surrounding shell or venv that would make uv act on another environment than px means.
_NOT_OURS = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_FROZEN", "UV_LOCKED", "UV_NO_SYNC", "CONDA_PREFIX")
# How uv says that it did not reach a server at all; with an answer of the server its advice is another.
_UNREACHED = re.compile(r"dns error|client error \(Connect\)|tcp connect error|operation timed out")
# What uv built to learn what it depends on; a directory of the user's own has an address.
_BUILD = re.compile(r"Failed to (?:download and )?build `(?P<name>[^\s`=]+)(?P<own> @ file:)?[^`]*`")
_DOING = {
    "add": "Resolving what the project shall have (uv add)",
    "build": "Building (uv build)",
    "install": "Installing what a build needs (uv pip install)",
    "lock": "Resolving what the project depends on (uv lock)",
    "remove": "Resolving what the project shall have (uv remove)",
}
_HINT = re.compile(r"^hint: .*?(?=^(?:error|warning): |\Z)", re.MULTILINE | re.DOTALL)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Uv:
    """uv, run in one directory: its settings are those that it finds from there."""

    directory: Path
    offline: bool = False

    def run(self, *args: str | Path) -> process.Finished:
        """Run uv and return how it ended; no colours, no prompts, no progress."""
        flags = ["--color", "never", "--no-progress", *(["--offline"] if self.offline else [])]
        return process.run(
            [find_uv(), *flags, *args], cwd=self.directory, env=environment(offline=self.offline), doing=doing(args)
        )

    def must(self, action: str, *args: str | Path, remedy: str) -> process.Finished:
        """Run uv; a failure is PX100 with uv's own reason."""
        done = self.run(*args)
        if not done.ok:
            raise failure(action, done, remedy)
        return done


def doing(args: Sequence[str | Path]) -> str:
    """What uv is busy with, for those who wait for it."""
    words = [str(arg) for arg in args[: 2 if args[0] == "pip" else 1]]
    return _DOING.get(words[-1], f"Waiting for uv {' '.join(words)}")


@cache
def find_uv() -> str:
    """The uv that was installed with px, else the one on PATH."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = program("uv")
        if found is None:
            raise PxError("PX030") from None
        return found


def environment(*, offline: bool = False) -> dict[str, str]:
    """The environment as uv shall see it; the Python that runs px is there when PATH has none that fits."""
    own = os.path.dirname(os.path.realpath(sys.executable))
    path = os.pathsep.join(filter(None, [os.environ.get("PATH", os.defpath), own]))
    found = {k: v for k, v in os.environ.items() if k not in _NOT_OURS} | {"PATH": path}
    return {**_cache(), **({} if offline else online.patience()), **found}


def _cache() -> dict[str, str]:
    """A cache of uv's under px's home, where uv cannot write to its own: a home may be read-only."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    there = os.path.join(cache, "uv")
    while not os.path.exists(there):
        there = os.path.dirname(there)
    return {} if os.access(there, os.W_OK) else {"UV_CACHE_DIR": os.path.join(home_root(), "cache", "uv", "host")}


def failure(action: str, done: process.Finished, remedy: str) -> PxError:
    if _UNREACHED.search(done.stderr):
        remedy = "Check the network, the proxy (HTTPS_PROXY) and the index's address, then run the command again."
    elif built := _BUILD.search(done.stderr):
        remedy = f"Correct what the build of {built['name']} says, or spare uv the build: "
        remedy += (
            "write version and dependencies into [project], instead of naming them under dynamic."
            if built["own"]
            else "use a version that has a wheel, or say what it depends on in [[tool.uv.dependency-metadata]]."
        )
    return PxError("PX100", action=action, reason=explain(done.stderr), remedy=remedy)


def explain(stderr: str) -> str:
    """uv's reason, without the lines that only report progress and without hints at flags that px has not.

    Of all that a build said, how it ended is enough.
    """
    lines = [line.rstrip() for line in _HINT.sub("", _ANSI.sub("", stderr)).splitlines()]
    noise = ("Using CPython", "Resolved ", "Creating virtual", "warning: ")
    reason = [line for line in lines if line.strip() and not line.startswith(noise)]
    if len(reason) > 30:
        console.detail("\n".join(reason))
        reason[5:-20] = ["… (-v shows all of it)"]
    return "\n    ".join(reason) or "uv gave no reason"
