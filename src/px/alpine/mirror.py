"""Where Alpine's packages come from, and which keys may sign its indexes."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from px import DATA, console
from px.debian.mirror import Mirror
from px.errors import PxError

MIRROR, KEYS = "PX_ALPINE_MIRROR", "PX_ALPINE_KEYS"
KEYRING = Path(DATA, "bases", "alpine-keys")
"""Alpine's own keys; the README beside them says where they are from."""


def mirrors(base: str) -> tuple[Mirror, ...]:
    """The mirrors that ``PX_ALPINE_MIRROR`` names, a list with spaces or commas.

    Each is the directory that contains v3.20.  px knows none of its own.
    """
    found = [word.rstrip("/") for word in os.environ.get(MIRROR, "").replace(",", " ").split()]
    if not found:
        problem = "px does not know where Alpine's packages are"
        raise PxError("PX900", base=base, problem=problem, fix=[_choose(base)], whole_fix=True)
    for url in found:
        if urlsplit(url).scheme not in ("http", "https"):
            problem = f"{MIRROR} has {console.redact(url)!r}, which is no address of a server"
            raise PxError("PX900", base=base, problem=problem, fix=[_choose(base)], whole_fix=True)
    return tuple(Mirror(url, url, MIRROR) for url in found)


def _choose(base: str) -> str:
    release = base.rpartition("-")[2]
    return f"Name a mirror, the directory that contains v{release}, or a list of them: export {MIRROR}=URL"


def keys_directory(base: str) -> Path:
    """The directory of trusted keys: px's own, or the one that ``PX_ALPINE_KEYS`` names for a mirror of one's own."""
    named = os.environ.get(KEYS, "")
    if named and not Path(named).is_dir():
        problem = f"{KEYS} does not name a directory with public keys"
        fix = [f"Without the variable px trusts Alpine's own keys: unset {KEYS}"]
        raise PxError("PX900", base=base, problem=problem, fix=fix, whole_fix=True)
    return Path(named) if named else KEYRING
