"""Signed releases: only what a known key signed is believed, and only for the suite that was asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from px.debian.locking import release
from px.debian.locking.release import UntrustedError
from px.debian.mirror import KEYRING
from tests.support.debian import Mirror, SignedArchive, stanza

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)


@pytest.fixture
def archive() -> SignedArchive:
    return SignedArchive()


@pytest.fixture
def signed(archive: SignedArchive) -> bytes:
    mirror = Mirror()
    archive.publish(mirror, {"": [stanza("a")]})
    return mirror.files["dists/bookworm/InRelease"]


def test_a_good_signature(archive: SignedArchive, signed: bytes, tmp_path: Path) -> None:
    found = release.parse(release.verify(signed, archive.keyring(tmp_path / "keys")))
    assert found.codename == "bookworm"
    assert list(found.files) == ["main/binary-amd64/Packages.xz"]
    found.check_is("bookworm", now=NOW)


def test_text_around_the_signed_part_is_not_read(archive: SignedArchive, signed: bytes, tmp_path: Path) -> None:
    keyring = archive.keyring(tmp_path / "keys")
    text = b"Codename: evil\n\n" + signed + b"\nCodename: evil\n"
    try:
        content = release.verify(text, keyring)
    except UntrustedError:
        return
    assert b"evil" not in content


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b.replace(b"Origin: Debian", b"Origin: Debiam"),
        lambda b: b[: len(b) // 2],
        lambda b: b.partition(b"-----BEGIN PGP SIGNATURE")[0],
        lambda b: b"Codename: bookworm\nSHA256:\n",
        lambda b: b"",
    ],
    ids=["changed", "cut off", "no signature", "never signed", "empty"],
)
def test_what_is_not_signed_is_refused(damage: object, archive: SignedArchive, signed: bytes, tmp_path: Path) -> None:
    with pytest.raises(UntrustedError):
        release.verify(damage(signed), archive.keyring(tmp_path / "keys"))  # type: ignore[operator]


def test_another_key_is_refused(signed: bytes, tmp_path: Path) -> None:
    with pytest.raises(UntrustedError, match="signature is not good"):
        release.verify(signed, SignedArchive().keyring(tmp_path / "keys"))
    with pytest.raises(UntrustedError, match="signature is not good"):
        release.verify(signed, KEYRING)


def test_another_suite_and_an_old_release_are_refused(archive: SignedArchive, signed: bytes, tmp_path: Path) -> None:
    found = release.parse(release.verify(signed, archive.keyring(tmp_path / "keys")))
    with pytest.raises(UntrustedError, match="release of bookworm, not of trixie"):
        found.check_is("trixie", now=NOW)
    with pytest.raises(UntrustedError, match="was valid until"):
        found.check_is("bookworm", now=NOW + timedelta(days=8))


def test_index_files_are_checked_by_size_and_hash(archive: SignedArchive, tmp_path: Path) -> None:
    found = release.parse(
        b"Codename: x\nDate: Sat, 11 Jul 2026 10:16:37 UTC\nSHA256:\n " + b"0" * 64 + b" 3 Packages\n"
    )
    with pytest.raises(UntrustedError, match="2 bytes; the signed release says 3"):
        found.check("Packages", b"ab")
    with pytest.raises(UntrustedError, match="has sha256"):
        found.check("Packages", b"abc")
    with pytest.raises(UntrustedError, match="does not list Other"):
        found.check("Other", b"abc")


def test_signed_text_that_is_no_release() -> None:
    for text in (b"hello\n", b"Codename: x\nDate: nonsense\nSHA256:\n", b"\xff\xfe"):
        with pytest.raises(UntrustedError, match="not a release file"):
            release.parse(text)


def test_the_shipped_keyring_has_the_keys_of_both_releases() -> None:
    import pysequoia

    users = " ".join(str(u) for c in pysequoia.Cert.split_bytes(KEYRING.read_bytes()) for u in c.user_ids)
    assert "12/bookworm" in users
    assert "13/trixie" in users


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 -2359", "Sat, 14 Nov 99999 00:00:00 UTC", "0 0", ""])
def test_a_date_that_is_none(date: str) -> None:
    with pytest.raises(UntrustedError, match="not a release file"):
        release.parse(f"Codename: a\nDate: {date}\nSHA256:\n".encode())
