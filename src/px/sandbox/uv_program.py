"""uv as a program that runs in a sandbox.

The uv of a glibc machine does not start on a base that has musl: its loader is not there.  Then the loader and the
libraries that uv itself uses on this machine are shown to it, in a directory of their own that nothing else looks at.
"""

from __future__ import annotations

import os
import re
from functools import cache

from px import process
from px.elf import read_elf
from px.errors import PxError
from px.project.uv import find_uv
from px.warm.spec import Mount

_UV, _LIBRARIES = "/run/px/uv", "/run/px/uv-libraries"
_LISTED = re.compile(r"\s+(?P<name>lib\S+) => (?P<path>/\S+) \(0x[0-9a-f]+\)")
# glibc before 2.34 opens these itself, by name, when it looks up hosts.
_OPENED = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")


def uv_program(*, on_musl: bool) -> tuple[list[str], tuple[Mount, ...]]:
    """The command that starts uv in a sandbox, and what must be mounted for it."""
    shown: tuple[Mount, ...] = (Mount(find_uv(), _UV, True),)
    if not on_musl:
        return [_UV], shown
    loader, libraries = _needs(find_uv())
    if not loader:
        return [_UV], shown
    shown += tuple(Mount(path, f"{_LIBRARIES}/{name}", True) for name, path in sorted(libraries.items()))
    shown += (Mount(loader, f"{_LIBRARIES}/loader", True),)
    return [f"{_LIBRARIES}/loader", "--library-path", _LIBRARIES, _UV], shown


@cache
def _needs(program: str) -> tuple[str, dict[str, str]]:
    """The loader of a program and its libraries, by name; an empty loader if it needs none."""
    elf = read_elf(program)
    if elf is None or not elf.interpreter:
        return "", {}
    # As ldd does, but without its shell: the loader lists what it would load, and starts nothing.
    done = process.run([elf.interpreter, "--list", program])
    found = {match["name"]: match["path"] for match in _LISTED.finditer(done.stdout)}
    if not done.ok or not set(elf.needed) <= {*found, os.path.basename(elf.interpreter)}:
        problem = f"the libraries of {program} cannot be found, and the base has musl: {done.stderr.strip()}"
        raise PxError("PX903", problem=problem)
    beside = os.path.dirname(found.get("libc.so.6", ""))
    opened = {name: f"{beside}/{name}" for name in _OPENED}
    found |= {name: path for name, path in opened.items() if beside and os.path.exists(path)}
    return os.path.realpath(elf.interpreter), {name: os.path.realpath(path) for name, path in found.items()}
