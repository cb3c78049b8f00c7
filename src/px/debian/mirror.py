"""Which archive to download from: one from the environment, the one of the host's apt, or Debian's snapshot archive.

An archive is the directory that holds ``pool/``.  Debian has two: the main one, and one for security updates.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA
from px.debian.deb822 import parse_stanza, stanzas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

APT = Path("/etc/apt")
MIRROR, SECURITY_MIRROR = "PX_DEBIAN_MIRROR", "PX_DEBIAN_SECURITY_MIRROR"
KEYRING = Path(DATA, "bases", "debian-archive-keyring.gpg")
# apt's sources can also name Ubuntu and third parties.  Only an archive with one of these suites is Debian's.
_RELEASES = frozenset(
    ("oldoldstable", "oldstable", "stable", "testing", "unstable", "bullseye", "bookworm", "trixie", "forky", "sid")
)


@dataclass(frozen=True)
class Mirror:
    """The addresses of the two archives, and, for messages, where px found them."""

    main: str
    security: str
    origin: str

    def archive(self, suite: str) -> str:
        return self.security if suite.endswith("-security") else self.main

    def url(self, suite: str, path: str) -> str:
        return f"{self.archive(suite)}/{path}"


def mirrors(date: str, *, environment: Mapping[str, str] | None = None, apt: Path = APT) -> tuple[Mirror, ...]:
    """The mirrors to try, in order.  ``date`` is that of the lock, such as 20261114T000000Z.

    If the environment names a mirror, it is the only one: in a closed network nothing else can be reached.
    """
    environment = os.environ if environment is None else environment
    named = from_environment(environment)
    if named is not None:
        return (named,)
    # The host's own mirror comes first.  It removes old versions, which the snapshot archive still has.
    configured = from_apt(apt)
    return (configured, snapshot(date)) if configured is not None else (snapshot(date),)


def snapshot(date: str) -> Mirror:
    """Debian's snapshot archive at a date.  It is the only archive that keeps every version for ever."""
    root = f"https://snapshot.{domain()}/archive"
    return Mirror(f"{root}/debian/{date}", f"{root}/debian-security/{date}", f"the snapshot archive of {date[:8]}")


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


def from_environment(environment: Mapping[str, str]) -> Mirror | None:
    """The mirror that ``PX_DEBIAN_MIRROR`` names.

    Most mirrors have the security archive beside the main one, as ``…/debian-security`` beside ``…/debian``.
    ``PX_DEBIAN_SECURITY_MIRROR`` is for the others.
    """
    main = environment.get(MIRROR, "").rstrip("/")
    if not main:
        return None
    beside = f"{main}-security" if main.endswith("/debian") else main
    return Mirror(main, environment.get(SECURITY_MIRROR, "").rstrip("/") or beside, MIRROR)


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
