"""Another user for root to run programs as: many promises of px are about people who are not root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.needs import lacks, need, only_for

ORDINARY = 12345


def become(uid: int) -> list[str]:
    """What to put before a command to run it as ``uid``; nothing for the caller."""
    if uid == os.geteuid():
        return []
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def another_user(*paths: Path) -> int:
    """The uid of an ordinary user who can reach ``paths`` and run px, for tests that root runs."""
    must_reach(Path(sys.executable).parent, *paths)
    ready = subprocess.run([*become(ORDINARY), sys.executable, "-c", "import px"], capture_output=True, check=False)
    if ready.returncode != 0:
        lacks("a user to become", f"an ordinary user cannot run {sys.executable}: {ready.stderr.decode()[-200:]}")
    return ORDINARY


def must_reach(*paths: Path) -> None:
    """Go on with a test that root runs if an ordinary user can reach all of this."""
    only_for("root", "an ordinary user cannot become another one")
    need("a user to become")
    for path in paths:
        if subprocess.run([*become(ORDINARY), "test", "-x", path], check=False).returncode != 0:
            lacks("a user to become", f"an ordinary user cannot reach {path}")
