"""The architectures that px makes sandboxes for, and their names in Debian, OCI, the kernel and Python."""

from __future__ import annotations

import os
from dataclasses import dataclass

from px.errors import PxError

DEFAULT_BASE = "debian-12"


@dataclass(frozen=True)
class Architecture:
    """One processor architecture and its names."""

    name: str
    """Debian's and OCI's name."""
    machine: str
    """The kernel's, Python's and Alpine's name."""
    loader: str
    """The file name of the dynamic loader in Debian."""
    merged: tuple[str, ...]
    """The directories at the root that Debian has merged into ``/usr``."""
    cache_flags: int
    """The flags of its libraries in ``ld.so.cache``: FLAG_ELF_LIBC6 and the architecture's own bits."""

    @property
    def triplet(self) -> str:
        """The name of Debian's library directories."""
        return f"{self.machine}-linux-gnu"

    @property
    def musl_loader(self) -> str:
        """The file name of the dynamic loader in Alpine."""
        return f"ld-musl-{self.machine}.so.1"

    @property
    def platform(self) -> str:
        """The name in ``docker`` and ``px pack image --platform``."""
        return f"linux/{self.name}"


# The ABI fixes the path of the loader: /lib64/ld-linux-x86-64.so.2 on amd64, /lib/ld-linux-aarch64.so.1 on arm64.  So
# only amd64 has a /lib64.
_ALL = (
    Architecture("amd64", "x86_64", "ld-linux-x86-64.so.2", ("bin", "lib", "lib64", "sbin"), 0x0303),
    Architecture("arm64", "aarch64", "ld-linux-aarch64.so.1", ("bin", "lib", "sbin"), 0x0A03),
)
ARCHITECTURES = {one.name: one for one in _ALL}


def machine_of(architecture: str) -> str:
    return ARCHITECTURES[architecture].machine


def host_architecture() -> str:
    """Debian's name of this machine's architecture."""
    machine = os.uname().machine
    # macOS says arm64 where Linux says aarch64: both names of an architecture are accepted.
    found = next((one.name for one in _ALL if machine in (one.machine, one.name)), None)
    if found is None:
        raise PxError("PX900", base=DEFAULT_BASE, problem=f"px has no base for the architecture {machine}")
    return found


def architectures_named(text: str, option: str) -> list[str]:
    """The architectures of a list such as ``linux/amd64,linux/arm64``, each once; this machine's own if it is empty."""
    # Docker's long name of what everybody calls arm64.
    known = {one.platform: name for name, one in ARCHITECTURES.items()} | {"linux/arm64/v8": "arm64"}
    found = []
    for one in text.split(",") if text else ():
        if one.strip() not in known:
            example = f"{option}{','.join(one.platform for one in ARCHITECTURES.values())}"
            problem = "px has no such platform"
            raise PxError("PX040", option=option.rstrip(" ="), value=one, problem=problem, example=example)
        found.append(known[one.strip()])
    return list(dict.fromkeys(found)) or [host_architecture()]
