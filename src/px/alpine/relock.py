"""Makes the lock of an Alpine base.

Alpine's index has only the sha1 of a package's control part.  So px downloads every package, checks it from that hash
down to its files, and pins the sha256 of the whole file.
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
from px.debian.locking.release import UntrustedError
from px.debian.locking.relock import choose
from px.debian.mirror import Mirror
from px.errors import PxError
from px.http import FetchError
from px.platforms import machine_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from px.debian.lock import BaseLock, Closure
    from px.debian.locking.relock import Archive, Seeds

MIRROR, KEYS = "PX_ALPINE_MIRROR", "PX_ALPINE_KEYS"
REPOSITORIES = ("main", "community")


def mirror(base: str) -> Mirror:
    """The mirror that ``PX_ALPINE_MIRROR`` names: the directory that contains v3.20."""
    url = os.environ.get(MIRROR, "").rstrip("/")
    if not url:
        problem = "px does not know where Alpine's packages are"
        raise PxError("PX900", base=base, problem=problem, fix=[f"Choose a mirror: export {MIRROR}=URL"])
    return Mirror(url, url, MIRROR)


def keys_directory(base: str) -> Path:
    """The directory of trusted keys that ``PX_ALPINE_KEYS`` names.  On Alpine it is ``/etc/apk/keys``."""
    named = os.environ.get(KEYS, "")
    if not named or not Path(named).is_dir():
        problem = f"{KEYS} does not name a directory with Alpine's public keys"
        raise PxError(
            "PX900",
            base=base,
            problem=problem,
            fix=[f"Copy /etc/apk/keys from an Alpine system that you trust, and set: export {KEYS}=DIR"],
        )
    return Path(named)


def relock(archive: Archive, seeds: Seeds, architecture: str, capabilities: Mapping[str, Closure]) -> BaseLock:
    """Read the signed indexes, choose packages, download and check each of them, and pin it."""
    index = Index([p for repository in REPOSITORIES for p in _index(archive, seeds, repository, architecture)])
    chosen = choose(partial(solve, index), seeds, capabilities)
    pins = {name: _pin(archive, seeds, package, architecture) for name, package in sorted(chosen.packages.items())}
    # Alpine has no snapshot archive, so this is simply the time of locking.
    return chosen.lock(seeds, architecture, f"{archive.now:%Y%m%dT%H%M%SZ}", pins)


def _index(archive: Archive, seeds: Seeds, repository: str, architecture: str) -> list[Package]:
    base, url = seeds.name, f"{archive.mirror.main}/{seeds.codename}/{repository}/{machine_of(architecture)}"
    try:
        return parse_index(_signed_index(archive.http.get(f"{url}/APKINDEX.tar.gz"), archive.keys), repository)
    except FetchError as e:
        problem = f"the index of {repository} cannot be fetched: {e.reason}"
        why, fix = [f"The address is {console.redact(url)}."], ["Check the network and the proxy."]
        raise PxError("PX900", base=base, problem=problem, why=why, fix=fix, whole_fix=e.unreachable) from e
    except (UntrustedError, BadArchiveError, KeyError, ValueError) as e:
        problem = f"the index of {repository} cannot be trusted: {e}"
        raise PxError("PX900", base=base, problem=problem, why=[f"It came from {console.redact(url)}."]) from e


def _signed_index(content: bytes, keys: Path) -> str:
    # The signature and the index.
    parts = streams(content)
    if len(parts) != 2:
        raise UntrustedError("it is not signed")
    verify(parts[0], parts[1], keys)
    return parts[1].files()["APKINDEX"].decode("utf-8")


def _pin(archive: Archive, seeds: Seeds, package: Package, architecture: str) -> PinnedPackage:
    path = f"{seeds.codename}/{package.repository}/{machine_of(architecture)}/{package.file_name}"
    try:
        content = archive.http.get(f"{archive.mirror.main}/{path}")
        apk = read_apk(content)
    except FetchError as e:
        problem = f"{package.file_name} cannot be fetched: {e.reason}"
        raise PxError("PX900", base=seeds.name, problem=problem) from e
    except (BadArchiveError, ValueError) as e:
        raise PxError("PX900", base=seeds.name, problem=f"{package.file_name} is damaged: {e}") from e
    # read_apk has checked the files against the control part; this checks the control part against the signed index.
    if len(content) != package.size or apk.control_sha1 != package.control_sha1:
        problem = f"{package.file_name} is not the package that the signed index names"
        raise PxError("PX900", base=seeds.name, problem=problem)
    digest = hashlib.sha256(content).hexdigest()
    return PinnedPackage(package.name, package.version, architecture, path, len(content), digest, package.repository)
