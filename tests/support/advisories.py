"""Advisories in the real formats, as small as they can be: OSV's for Python and Debian, and the tracker's."""

from __future__ import annotations

from typing import Any

# As the PyPI part of OSV's export has it (GitHub's advisory database): one range with two branches.
JINJA2: dict[str, Any] = {
    "schema_version": "1.6.0",
    "id": "GHSA-h5c8-rqwp-cp95",
    "modified": "2024-02-16T08:10:28.446Z",
    "published": "2024-01-11T15:20:48Z",
    "aliases": ["CVE-2024-22195"],
    "summary": "Jinja vulnerable to HTML attribute injection when passing user input as keys to xmlattr filter",
    "details": "The `xmlattr` filter in affected versions of Jinja accepts keys containing spaces.",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Jinja2", "purl": "pkg:pypi/jinja2"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.3"}]}],
            "database_specific": {"source": "advisory-database/GHSA-h5c8-rqwp-cp95.json"},
        }
    ],
    "references": [{"type": "WEB", "url": "https://example.org/advisory"}],
    "database_specific": {"cwe_ids": ["CWE-79"], "severity": "MODERATE", "github_reviewed": True},
    "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N"}],
}
# The Python Packaging Advisory Database's record of the same: it lists versions, and a commit range that px ignores.
JINJA2_PYSEC: dict[str, Any] = {
    "id": "PYSEC-2024-1",
    "modified": "2024-02-01T00:00:00Z",
    "aliases": ["CVE-2024-22195", "GHSA-h5c8-rqwp-cp95"],
    "details": "Jinja is an extensible templating engine.",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "jinja2", "purl": "pkg:pypi/jinja2"},
            "ranges": [{"type": "GIT", "repo": "https://example.org/jinja", "events": [{"introduced": "0"}]}],
            "versions": ["3.0.0", "3.1.0", "3.1.2"],
        }
    ],
}
# OSV's conversion of Debian's data: the ecosystem has the release, the name is the source package.
OPENSSL: dict[str, Any] = {
    "id": "DSA-5764-1",
    "modified": "2024-09-03T18:30:00Z",
    "summary": "openssl - security update",
    "upstream": ["CVE-2024-6119"],
    "affected": [
        {
            "package": {"ecosystem": "Debian:12", "name": "openssl", "purl": "pkg:deb/debian/openssl?arch=source"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.0.14-1~deb12u2"}]}],
            "ecosystem_specific": {"urgency": "not yet assigned"},
        },
        {
            "package": {"ecosystem": "Debian:13", "name": "openssl", "purl": "pkg:deb/debian/openssl?arch=source"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.3.2-1"}]}],
        },
    ],
}


def tracker(source: str, **releases: dict[str, Any]) -> dict[str, Any]:
    """The data of Debian's tracker about one source package: CVE -> what its releases say."""
    return {
        source: {
            name.replace("_", "-"): {
                "scope": "local",
                "debianbug": 1068024,
                "description": "A description of the problem",
                "releases": {"bookworm": {"repositories": {"bookworm": "1"}, **said}},
            }
            for name, said in releases.items()
        }
    }


def vex(*statements: dict[str, Any]) -> dict[str, Any]:
    return {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": "https://example.org/vex/1",
        "author": "The team",
        "timestamp": "2026-01-01T00:00:00Z",
        "version": 1,
        "statements": list(statements),
    }
