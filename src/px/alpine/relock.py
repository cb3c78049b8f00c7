"""Making the lock of an Alpine base.

An index knows a package by the sha1 of its control part only, so the packages themselves are fetched and
followed from that hash to their files before the lock pins them by sha256.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.alpine.apk import read_apk, streams
from px.alpine.index import Index, Package, parse_index, solve
from px.alpine.signature import verify
from px.debian.archive import BadArchiveError
from px.debian.lock import PinnedPackage
from px.debian.mirror import Mirror
from px.debian.release import UntrustedError
from px.debian.relock import choose
from px.errors import PxError
from px.http import FetchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from px.debian.lock import BaseLock, Closure
    from px.debian.relock import Seeds
    from px.http import Http

MIRROR, KEYS = "PX_ALPINE_MIRROR", "PX_ALPINE_KEYS"
REPOSITORIES = ("main", "community")
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


def mirror(base: str) -> Mirror:
    """The archive that ``PX_ALPINE_MIRROR`` names: the directory that has v3.20."""
    url = os.environ.get(MIRROR, "").rstrip("/")
    if not url:
        problem = "px does not know where Alpine's packages are"
        raise PxError("PX900", base=base, problem=problem, fix=[f"Name a mirror: export {MIRROR}=URL"])
    return Mirror(url, url, MIRROR)


def keys_directory(base: str) -> Path:
    """The directory of trusted keys that ``PX_ALPINE_KEYS`` names; Alpine ships it as ``/etc/apk/keys``."""
    named = os.environ.get(KEYS, "")
    if not named or not Path(named).is_dir():
        problem = f"{KEYS} names no directory of Alpine's public keys"
        raise PxError(
            "PX900",
            base=base,
            problem=problem,
            fix=[f"Copy /etc/apk/keys of an Alpine that you trust: export {KEYS}=DIR"],
        )
    return Path(named)


def relock(
    http: Http,
    source: Mirror,
    seeds: Seeds,
    architecture: str,
    capabilities: Mapping[str, Closure],
    keys: Path,
    now: datetime,
) -> BaseLock:
    """Read the signed indexes, choose, fetch and check every package, and pin it."""
    machine = ARCHITECTURES[architecture]
    found = [
        p
        for r in REPOSITORIES
        for p in _index(http, f"{source.main}/{seeds.codename}/{r}/{machine}", r, keys, seeds.name)
    ]
    index = Index(found)
    chosen = choose(partial(solve, index), seeds, capabilities)
    pins = {n: _pin(http, source, seeds, machine, p, architecture) for n, p in sorted(chosen.packages.items())}
    return chosen.lock(seeds, architecture, f"{now:%Y%m%dT%H%M%SZ}", pins)


def _index(http: Http, url: str, repository: str, keys: Path, base: str) -> list[Package]:
    try:
        return parse_index(_signed_index(http.get(f"{url}/APKINDEX.tar.gz"), keys), repository)
    except FetchError as e:
        problem = f"the index of {repository} cannot be fetched: {e.reason}"
        raise PxError("PX900", base=base, problem=problem, why=[f"The address is {console.redact(url)}."]) from e
    except (UntrustedError, BadArchiveError, KeyError, ValueError) as e:
        problem = f"the index of {repository} cannot be trusted: {e}"
        raise PxError("PX900", base=base, problem=problem, why=[f"It came from {console.redact(url)}."]) from e


def _signed_index(content: bytes, keys: Path) -> str:
    parts = streams(content)
    if len(parts) != 2:
        raise UntrustedError("it is not signed")
    verify(parts[0], parts[1], keys)
    return parts[1].files()["APKINDEX"].decode("utf-8")


def _pin(http: Http, source: Mirror, seeds: Seeds, machine: str, package: Package, architecture: str) -> PinnedPackage:
    path = f"{seeds.codename}/{package.repository}/{machine}/{package.file_name}"
    try:
        content = http.get(f"{source.main}/{path}")
        apk = read_apk(content)
    except FetchError as e:
        problem = f"{package.file_name} cannot be fetched: {e.reason}"
        raise PxError("PX900", base=seeds.name, problem=problem) from e
    except (BadArchiveError, ValueError) as e:
        raise PxError("PX900", base=seeds.name, problem=f"{package.file_name} is damaged: {e}") from e
    if len(content) != package.size or apk.control_sha1 != package.control_sha1:
        problem = f"{package.file_name} is not the package that the signed index names"
        raise PxError("PX900", base=seeds.name, problem=problem)
    digest = hashlib.sha256(content).hexdigest()
    return PinnedPackage(package.name, package.version, architecture, path, len(content), digest, package.repository)
