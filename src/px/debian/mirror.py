"""Which archives to download from: mirrors (those in the environment, or that of the host's apt), then snapshots.

Mirrors remove a version soon after a newer one is published.  The snapshot archive keeps everything, but it limits its
callers and is at times down, so it comes last.

An archive is the directory that holds ``pool/``.  Debian has two: the main one, and one for security updates.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA
from px.debian.deb822 import parse_stanza, stanzas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

APT = Path("/etc/apt")
MIRROR, SECURITY_MIRROR, SNAPSHOT = "PX_DEBIAN_MIRROR", "PX_DEBIAN_SECURITY_MIRROR", "PX_DEBIAN_SNAPSHOT"
OFFICIAL = "official"
"""Stands for Debian's own snapshot archive in ``PX_DEBIAN_SNAPSHOT``."""
KEYS = "PX_DEBIAN_KEYRING"
KEYRING = Path(DATA, "bases", "debian-archive-keyring.gpg")
# apt's sources can also name Ubuntu and third parties.  Only an archive with one of these suites is Debian's.
_RELEASES = frozenset(
    ("oldoldstable", "oldstable", "stable", "testing", "unstable", "bullseye", "bookworm", "trixie", "forky", "sid")
)


def keyring() -> Path:
    """The keys that may sign an archive: Debian's own, or those of a mirror that signs for itself."""
    return Path(os.environ.get(KEYS) or KEYRING)


@dataclass(frozen=True)
class Mirror:
    """The addresses of the two archives, and, for messages, where px found them."""

    main: str
    security: str
    origin: str
    is_snapshot: bool = False

    def archive(self, suite: str) -> str:
        return self.security if suite.endswith("-security") else self.main

    def url(self, suite: str, path: str) -> str:
        return f"{self.archive(suite)}/{path}"


def mirrors(*dates: str, environment: Mapping[str, str] | None = None, apt: Path = APT) -> tuple[Mirror, ...]:
    """The archives to try, in order.  ``dates`` are those of the lock, such as 20261114T000000Z.

    If the environment names mirrors and no snapshots, the mirrors are all: in a closed network nothing else can be
    reached.
    """
    environment = os.environ if environment is None else environment
    named = from_environment(environment)
    configured = from_apt(apt) if not named else None
    roots = _list(environment.get(SNAPSHOT, "" if named else OFFICIAL)) or ([] if named or configured else [OFFICIAL])
    kept = (snapshot(date, root) for root in roots for date in dates)
    return (*named, *([configured] if configured else []), *kept)


def snapshot(date: str, root: str = OFFICIAL) -> Mirror:
    """A snapshot archive at a date.  Debian's own is the only one that keeps every version for ever."""
    root = f"https://snapshot.{domain()}/archive" if root == OFFICIAL else root.rstrip("/")
    origin = f"the snapshot archive of {date[:8]}"
    return Mirror(f"{root}/debian/{date}", f"{root}/debian-security/{date}", origin, is_snapshot=True)


@cache
def domain() -> str:
    """Debian's domain, from the e-mail addresses in the keys that sign its archive."""
    import pysequoia

    for certificate in pysequoia.Cert.split_bytes(KEYRING.read_bytes()):
        for user in certificate.user_ids:
            _, at, rest = str(user).rpartition("@")
            if at:
                return rest.rstrip(">")
    raise AssertionError("the shipped keyring names nobody")


def from_environment(environment: Mapping[str, str]) -> tuple[Mirror, ...]:
    """The mirrors that ``PX_DEBIAN_MIRROR`` names, a list with spaces or commas.

    Most mirrors have the security archive beside the main one, as ``…/debian-security`` beside ``…/debian``.
    ``PX_DEBIAN_SECURITY_MIRROR`` is for the others: its first is that of the first mirror, and so on.
    """
    main, security = _list(environment.get(MIRROR, "")), _list(environment.get(SECURITY_MIRROR, ""))
    return tuple(
        Mirror(one, other or (f"{one}-security" if one.endswith("/debian") else one), MIRROR)
        for one, other in zip_longest(main, security[: len(main)], fillvalue="")
    )


def _list(text: str) -> list[str]:
    return [word.rstrip("/") for word in text.replace(",", " ").split()]


def from_apt(apt: Path = APT) -> Mirror | None:
    """The first Debian archive in the host's apt configuration, of any release: a mirror has all releases."""
    main = security = None
    for uri, suite in _apt_sources(apt):
        release, _, pocket = suite.partition("-")
        if release.partition("/")[0] not in _RELEASES or not uri.startswith(("http://", "https://")):
            continue
        # Up to Debian 10 the security suite was called buster/updates; since Debian 11 it is bullseye-security.
        if pocket == "security" or suite.endswith("/updates"):
            security = security or uri.rstrip("/")
        elif pocket in ("", "updates"):
            main = main or uri.rstrip("/")
    if main is None:
        return None
    beside = f"{main}-security" if main.endswith("/debian") else main
    return Mirror(main, security or beside, f"the apt configuration in {apt}")


def _apt_sources(apt: Path) -> Iterator[tuple[str, str]]:
    # sources.list(5): apt reads only these two suffixes in sources.list.d, each with a format of its own.
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if path.suffix == ".sources":
            yield from _deb822_sources(text)
        elif path.suffix == ".list":
            yield from _one_line_sources(text)


def _deb822_sources(text: str) -> Iterator[tuple[str, str]]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in stanzas(without_comments):
        fields = {name.lower(): value.split() for name, value in parse_stanza(stanza).items()}
        enabled = fields.get("enabled", ["yes"])[0].lower() not in ("no", "false")
        if enabled and "deb" in fields.get("types", []) and "main" in fields.get("components", []):
            yield from ((uri, suite) for uri in fields.get("uris", []) for suite in fields.get("suites", []))


def _one_line_sources(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words or words[0] != "deb":
            continue
        # deb [arch=amd64 signed-by=FILE] URI SUITE COMPONENT...: the options may have spaces between them.
        if len(words) > 1 and words[1].startswith("["):
            end = next((i for i, word in enumerate(words) if word.endswith("]")), len(words))
            words = [words[0], *words[end + 1 :]]
        if len(words) >= 4 and "main" in words[3:]:
            yield words[1], words[2]
