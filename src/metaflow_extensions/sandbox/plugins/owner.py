"""Who owns a sandbox: one process of one machine.

A key is shared by people and machines, and px must not end what another one uses.  So every sandbox carries its owner,
and only one whose owner has surely died on this machine counts as left behind.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

LABEL = "owner"
_UNKNOWN = "unknown"


def machine() -> str:
    """This machine, since it was started, as far as its processes can see each other: a container is one of its own."""
    parts = [platform.node()]
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            parts.append(Path(path).read_text(encoding="ascii").strip())
        except OSError:
            continue
    try:
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not Linux
        import uuid

        parts.append(str(uuid.getnode()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def owner() -> str:
    """This process, as a label: the machine, the number, and when it began, because numbers are used again."""
    return f"{machine()}-{os.getpid()}-{_began(os.getpid())}"


def is_dead(label: str) -> bool:
    """Whether this owner has surely died.  Of other machines nobody here can tell."""
    where, _, process = label.partition("-")
    number, _, began = process.partition("-")
    if where != machine() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it lives, and is another user's
        pass
    now = _began(int(number))
    return _UNKNOWN not in (began, now) and began != now


def _began(pid: int) -> str:
    """The time at which a process began, in ticks of the kernel's clock."""
    try:
        # The name of the program, in parentheses, may hold spaces; the number is the 20th word after it (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return _UNKNOWN
