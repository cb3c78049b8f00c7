"""Debian packages that the tests need, installed by the tests themselves where root runs them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

# Somebody else's apt may hold the lock of the system for a while.
INSTALL = ("apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends")


def command(packages: Iterable[str]) -> str:
    """What a person types to install them."""
    return f"sudo apt-get install -y --no-install-recommends {' '.join(packages)}"


def install(packages: Iterable[str]) -> str | None:
    """Install what is not there yet; the reason when that is not possible.

    ``PX_TEST_NO_INSTALL=1`` keeps the tests from installing anything.
    """
    if os.geteuid() != 0:
        return "only root can install it"
    if os.environ.get("PX_TEST_NO_INSTALL"):
        return "PX_TEST_NO_INSTALL is set"
    if shutil.which("apt-get") is None:
        return "there is no apt-get here to install it with"
    # Two test processes must not run apt at the same time: the second waits, and finds the work done.
    with Path(tempfile.gettempdir(), f"px-tests-apt-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = _missing(list(packages))
        return _install(missing) if missing else None


def _missing(names: list[str]) -> list[str]:
    asked = _run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names)
    present = {line.split()[0] for line in asked.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in present]


def _install(names: list[str]) -> str | None:
    sys.stderr.write(f"installing {' '.join(names)} …\n")
    for update in (False, True):
        if update:  # a fresh machine has no lists yet, or old ones
            _run("apt-get", "update", "-qq")
        known = _known(names)
        done = _run(*INSTALL, *known)
        if done.returncode == 0 and known == names:
            return None
    return None if done.returncode == 0 else f"apt-get install failed: {done.stderr.strip()[-300:]}"


def _known(names: list[str]) -> list[str]:
    """Those that this Debian has: one unknown name would keep apt from installing any.

    docker-cli, for example, is a package since Debian 13; before, the client is in docker.io.
    """
    shown = _run("apt-cache", "show", "--no-all-versions", *names).stdout.splitlines()
    return [name for name in names if f"Package: {name}" in shown]


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    # Services that packages would start are none of the tests' business.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "LC_ALL": "C.UTF-8"}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
