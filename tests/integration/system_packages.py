"""Debian packages that the integration tests use: installed when root runs the tests, asked for otherwise."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


def _missing(names: tuple[str, ...]) -> list[str]:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    present = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in present]


def require_packages(*names: str) -> None:
    """Make sure that the packages are there, or skip with the command that would put them there.

    ``PX_TEST_NO_INSTALL=1`` keeps the tests from installing anything.
    """
    if shutil.which("dpkg-query") is None:
        pytest.skip(f"not a Debian system: {', '.join(names)} cannot be looked up")
    missing = _missing(names)
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or os.environ.get("PX_TEST_NO_INSTALL"):
        pytest.skip(f"needs: sudo {' '.join(command)}")
    # Two test processes must not run apt at the same time.
    with Path(tempfile.gettempdir(), f"px-tests-apt-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = _missing(names)
        if not missing:
            return
        sys.stderr.write(f"installing {' '.join(missing)} …\n")
        # Services that packages would start are none of the tests' business.
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode != 0:
            # A fresh machine has no lists yet, or old ones.
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, env=env, check=False)
            done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode != 0:
            pytest.skip(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
