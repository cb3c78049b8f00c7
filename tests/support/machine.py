"""Checks of the machine that runs the tests: each says why something cannot be used here, or None when it works."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from px.debian.locking.relock import load_seeds
from px.debian.mirror import mirrors
from px.engines import limits
from px.engines.bubblewrap import Bubblewrap
from px.errors import PxError
from px.http import FetchError, Http
from px.warm.spec import Limits
from tests.support.interpreters import interpreters
from tests.support.px import UV

Check = Callable[[], str | None]


def runs(*argv: str, stdin: str = "") -> Check:
    """A program is there and ends as it should: one that is installed may still be broken."""

    def check() -> str | None:
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            return f"{argv[0]}: {e.strerror if isinstance(e, OSError) else 'no answer'}"
        if done.returncode == 0:
            return None
        return f"{' '.join(argv)} ended with code {done.returncode} and said {done.stderr.strip()[-300:] or 'nothing'}"

    return check


def every(*checks: Check) -> Check:
    return lambda: next((why for check in checks if (why := check()) is not None), None)


def root() -> str | None:
    return None if os.geteuid() == 0 else "an ordinary user runs the tests"


def room_for_all() -> str | None:
    """skopeo unpacks in a directory that some machines have for root alone."""
    return None if os.access("/var/tmp", os.W_OK) else "you may not write to /var/tmp"


def directory(path: Path) -> Check:
    return lambda: None if path.is_dir() else f"{path} is not a directory"


def bubblewrap() -> str | None:
    """px chooses one and makes a sandbox with it, as it does before its first run."""
    with tempfile.TemporaryDirectory(prefix="px-trial-") as home:
        problem = Bubblewrap(home).problem()
    return None if problem is None else f"{problem.reason}. {problem.fix[0]}"


def control_groups() -> str | None:
    try:
        limits.group(Limits(memory=64 << 20, cpus=1, pids=10)).close()
    except PxError as e:
        return e.what
    return None


def gcc(machine: str, version: str) -> Check:
    """Exactly this gcc, with the kernel's headers: another one makes other bytes of the same source."""
    compiler = f"{machine}-linux-gnu-gcc"

    def is_that_version() -> str | None:
        said = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout
        return None if said.strip() == version else f"{compiler} is version {said.strip()}, not {version}"

    headers = runs(compiler, "-fsyntax-only", "-x", "c", "-", stdin="#include <asm/stat.h>\n")
    return every(headers, is_that_version)


def python(minor: str) -> Check:
    return lambda: None if interpreters(minor) else f"no python{minor} on PATH or among pyenv's runs"


def postgres_programs() -> Path | None:
    """Where the newest PostgreSQL server of this Debian is: not on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def postgres() -> str | None:
    programs = postgres_programs()
    return runs(str(programs / "postgres"), "--version")() if programs else "there is no server in /usr/lib/postgresql"


def debian_mirror() -> str | None:
    mirror = mirrors("")[0]
    codename = next(iter(load_seeds().values())).codename
    try:
        answer = Http().request("HEAD", mirror.url(codename, f"dists/{codename}/InRelease"))
    except FetchError as e:
        return str(e)
    return None if answer.status == 200 else f"{mirror.main} answers {answer.status}"


package_index = runs(UV, "pip", "compile", "--quiet", "--no-cache", "--no-deps", "-", stdin="packaging\n")
