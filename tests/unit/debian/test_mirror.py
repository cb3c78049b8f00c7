"""Which archive px downloads from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from px.debian.mirror import from_apt, from_environment, mirrors

if TYPE_CHECKING:
    from pathlib import Path

DATE = "20260101T000000Z"


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


def test_a_named_mirror_is_the_only_one(apt: Path) -> None:
    (apt / "sources.list").write_text("deb http://host/debian bookworm main\n")
    (only,) = mirrors(DATE, environment={"PX_DEBIAN_MIRROR": "http://inside/debian/"}, apt=apt)
    assert only.url("bookworm", "pool/x.deb") == "http://inside/debian/pool/x.deb"
    assert only.url("bookworm-updates", "pool/x.deb") == "http://inside/debian/pool/x.deb"
    assert only.url("bookworm-security", "pool/x.deb") == "http://inside/debian-security/pool/x.deb"


def test_one_value_covers_an_archive_that_has_both() -> None:
    (found,) = from_environment({"PX_DEBIAN_MIRROR": "http://inside/all"})
    assert found.security == found.main == "http://inside/all"


def test_the_security_archive_can_be_named() -> None:
    (found,) = from_environment({"PX_DEBIAN_MIRROR": "http://a/debian", "PX_DEBIAN_SECURITY_MIRROR": "http://b/sec/"})
    assert found.security == "http://b/sec"


def test_lists_of_mirrors_then_of_snapshots_by_each_date(apt: Path) -> None:
    named = {"PX_DEBIAN_MIRROR": "http://a/debian/, http://b/all", "PX_DEBIAN_SECURITY_MIRROR": "http://a/sec"}
    kept = {"PX_DEBIAN_SNAPSHOT": "http://s/archive/ official"}
    found = mirrors(DATE, "20250101T000000Z", environment={**named, **kept}, apt=apt)
    assert [(m.main, m.security) for m in found[:3]] == [
        ("http://a/debian", "http://a/sec"),
        ("http://b/all", "http://b/all"),
        (f"http://s/archive/debian/{DATE}", f"http://s/archive/debian-security/{DATE}"),
    ]
    assert [m.is_snapshot for m in found] == [False, False, True, True, True, True]
    assert found[3].main == "http://s/archive/debian/20250101T000000Z"
    assert len(mirrors(DATE, environment=named, apt=apt)) == 2
    assert len(mirrors(DATE, environment={"PX_DEBIAN_SNAPSHOT": ""}, apt=apt)) == 1
    (apt / "sources.list").write_text("deb http://host/debian bookworm main\n")
    assert [m.main for m in mirrors(DATE, environment={"PX_DEBIAN_SNAPSHOT": ""}, apt=apt)] == ["http://host/debian"]


def test_without_anything_the_snapshot_of_the_pinned_date(apt: Path) -> None:
    (only,) = mirrors(DATE, environment={}, apt=apt)
    assert DATE in only.main
    assert DATE in only.security
    assert only.main != only.security


def test_apt_first_then_the_snapshot(apt: Path) -> None:
    (apt / "sources.list").write_text("deb http://host/debian bookworm main\n")
    first, second = mirrors(DATE, environment={}, apt=apt)
    assert first.main == "http://host/debian"
    assert first.security == "http://host/debian-security"
    assert DATE in second.main


def test_one_line_sources(apt: Path) -> None:
    (apt / "sources.list").write_text(
        "# deb http://commented/debian bookworm main\n"
        "deb-src http://source/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/x/y.gpg] https://host/debian bookworm-updates contrib main # note\n"
        "deb http://sec.host/debian-security bookworm-security main\n"
        "deb\n"
    )
    found = from_apt(apt)
    assert found is not None
    assert (found.main, found.security) == ("https://host/debian", "http://sec.host/debian-security")


def test_deb822_sources(apt: Path) -> None:
    (apt / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\nURIs: http://off/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
        "Types: deb deb-src\n# a comment\nURIs: http://host/debian\nSuites: trixie trixie-updates\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n"
        "Types: deb\nURIs: http://host/debian-security\nSuites: trixie-security\nComponents: main\n"
    )
    found = from_apt(apt)
    assert found is not None
    assert (found.main, found.security) == ("http://host/debian", "http://host/debian-security")


@pytest.mark.parametrize(
    "line",
    [
        "deb http://archive.example/ubuntu noble main",
        "deb https://example.org/node_20.x nodistro main",
        "deb cdrom:[Debian]/ bookworm main",
        "deb http://host/debian bookworm contrib",
        "deb http://host/debian bookworm-backports main",
    ],
)
def test_what_is_no_debian_archive_is_not_used(line: str, apt: Path) -> None:
    (apt / "sources.list").write_text(line + "\n")
    assert from_apt(apt) is None


def test_no_apt_at_all(tmp_path: Path) -> None:
    assert from_apt(tmp_path / "nothing") is None
