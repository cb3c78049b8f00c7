"""InRelease files: check the signature, then read only the text that it covers.

The signed text has the hashes of the package indexes, and those have the hashes of the packages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from px.debian.deb822 import parse_stanza

if TYPE_CHECKING:
    from pathlib import Path


class UntrustedError(Exception):
    """A release file or index is not what the archive signed.  The text says why."""


@dataclass(frozen=True)
class Release:
    """The content of a verified InRelease: the suite, its dates, and the hash of every index file."""

    codename: str
    date: datetime
    valid_until: datetime | None = None
    files: dict[str, tuple[int, str]] = field(default_factory=dict, repr=False)
    """Path of an index file -> size, sha256."""

    def check(self, path: str, content: bytes) -> bytes:
        """Return ``content`` if it is the file that the archive signed as ``path``."""
        size, sha256 = self.entry(path)
        if len(content) != size:
            raise UntrustedError(f"{path} has {len(content)} bytes; the signed release says {size}")
        actual = hashlib.sha256(content).hexdigest()
        if actual != sha256:
            raise UntrustedError(f"{path} has sha256 {actual}; the signed release says {sha256}")
        return content

    def entry(self, path: str) -> tuple[int, str]:
        if path not in self.files:
            raise UntrustedError(f"the signed release does not list {path}")
        return self.files[path]

    def check_is(self, codename: str, *, now: datetime) -> None:
        """Refuse the release of another suite, and one that is too old.

        An attacker could replay an old, correctly signed release to hide security updates.
        """
        if self.codename != codename:
            raise UntrustedError(f"this is the signed release of {self.codename}, not of {codename}")
        if self.valid_until is not None and now > self.valid_until:
            raise UntrustedError(f"the signed release was valid until {self.valid_until:%Y-%m-%d %H:%M} UTC")


def verify(signed: bytes, keyring: Path) -> bytes:
    """The text inside a clear-signed message, if a key of the keyring signed it; otherwise raise."""
    import pysequoia

    certificates = pysequoia.Cert.split_bytes(keyring.read_bytes())
    try:
        result = pysequoia.verify(signed, store=lambda _: certificates)
    except RuntimeError as e:
        # pysequoia raises this for every kind of bad signature.  Its text goes on with a backtrace of Rust.
        raise UntrustedError(f"its signature is not good: {str(e).splitlines()[0]}") from e
    # Only these bytes are signed.  A file can have other text before and after them.
    if not result.bytes or not result.valid_sigs:
        raise UntrustedError("it holds no signed text")
    return bytes(result.bytes)


def parse(signed_text: bytes) -> Release:
    """Read a release out of bytes that :func:`verify` returned."""
    try:
        fields = parse_stanza(signed_text.decode("utf-8"))
        # One line for each index file: sha256, size, path.
        rows = (line.split() for line in fields["SHA256"].splitlines() if line.strip())
        files = {path: (int(size), sha256) for sha256, size, path in rows}
        until = fields.get("Valid-Until")
        return Release(fields["Codename"], _date(fields["Date"]), _date(until) if until else None, files)
    except (LookupError, ValueError, OverflowError, TypeError) as e:  # the last three of dates
        raise UntrustedError(f"the signed text is not a release file: {e}") from e


def _date(text: str) -> datetime:
    # Debian writes "UTC", which RFC 5322 does not have as the name of a zone.
    return parsedate_to_datetime(text.replace("UTC", "+0000")).astimezone(UTC)
