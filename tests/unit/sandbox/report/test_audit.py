"""Advisories in the real formats against packages, the ignore list, and SARIF."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from px.errors import PxError
from px.sandbox.report.advisories import DEBIAN, PYPI, Finding, Subject, read_advisories
from px.sandbox.report.sarif import sarif
from px.sandbox.report.vex import apply, read_vex
from tests.support.advisories import JINJA2, JINJA2_PYSEC, OPENSSL, tracker, vex

PY = Subject(PYPI, "jinja2", "3.1.2", purl="pkg:pypi/jinja2@3.1.2")
SSL = Subject(DEBIAN, "openssl", "3.0.13-1~deb12u1", "12", "bookworm", "pkg:deb/debian/openssl", ("libssl3", "openssl"))


def found(tmp_path: Path, *documents: Any, subjects: tuple[Subject, ...] = (PY, SSL)) -> list[Finding]:
    paths = []
    for number, document in enumerate(documents):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(document))
    return read_advisories(paths, subjects).findings


def test_osv_for_python_and_for_debian(tmp_path: Path) -> None:
    one, other = found(tmp_path, JINJA2, OPENSSL)
    assert (one.subject.name, one.id, one.fixed) == ("openssl", "CVE-2024-6119", "3.0.14-1~deb12u2")
    assert (other.subject.name, other.id, other.fixed, other.severity) == (
        "jinja2", "CVE-2024-22195", "3.1.3", "moderate",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("version", "bad"),
    [("3.1.2", True), ("2.0", True), ("3.1.3", False), ("3.1.3rc1", True), ("3.1.2.post1", True), ("nonsense", False)],
)
def test_versions_are_compared_as_the_ecosystem_does(version: str, bad: bool, tmp_path: Path) -> None:
    assert bool(found(tmp_path, JINJA2, subjects=(replace(PY, version=version),))) is bad


@pytest.mark.parametrize(
    ("version", "bad"), [("3.0.14-1~deb12u1", True), ("3.0.14-1~deb12u2", False), ("3.1-1", False)]
)
def test_debians_versions(version: str, bad: bool, tmp_path: Path) -> None:
    assert bool(found(tmp_path, OPENSSL, subjects=(replace(SSL, version=version),))) is bad


def test_another_release_has_other_fixes(tmp_path: Path) -> None:
    trixie = replace(SSL, release="13", codename="trixie", version="3.3.1-1")
    assert [f.fixed for f in found(tmp_path, OPENSSL, subjects=(trixie,))] == ["3.3.2-1"]
    assert found(tmp_path, OPENSSL, subjects=(replace(trixie, release="14"),)) == []


@pytest.mark.parametrize(
    ("events", "bad"),
    [
        ([{"introduced": "3.1.2"}], True),
        ([{"introduced": "3.1.3"}], False),
        ([{"introduced": "0"}, {"last_affected": "3.1.2"}], True),
        ([{"introduced": "0"}, {"last_affected": "3.1.1"}], False),
        ([{"introduced": "0"}, {"fixed": "2.0"}, {"introduced": "3.0"}, {"fixed": "4.0"}], True),
        ([{"fixed": "4.0"}, {"introduced": "3.0"}, {"fixed": "2.0"}, {"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "2.0"}, {"introduced": "3.2"}], False),
    ],
)
def test_ranges(events: list[dict[str, str]], bad: bool, tmp_path: Path) -> None:
    row = {"package": {"ecosystem": "PyPI", "name": "jinja2"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    assert bool(found(tmp_path, JINJA2 | {"affected": [row]})) is bad


def test_the_same_advisory_from_two_databases_is_one(tmp_path: Path) -> None:
    (one,) = found(tmp_path, JINJA2_PYSEC, JINJA2, {"vulns": [JINJA2]})
    assert one.fixed == "3.1.3"
    (listed,) = found(tmp_path, JINJA2_PYSEC)
    assert listed.id == "CVE-2024-22195"
    assert found(tmp_path, JINJA2_PYSEC, subjects=(replace(PY, version="3.1.1"),)) == []
    assert found(tmp_path, JINJA2 | {"withdrawn": "2024-02-01T00:00:00Z"}) == []


def test_a_zip_and_a_directory(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("GHSA-h5c8-rqwp-cp95.json", json.dumps(JINJA2))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "DSA-5764-1.json").write_text(json.dumps(OPENSSL))
    read = read_advisories([tmp_path / "all.zip", tmp_path / "more"], (PY, SSL))
    assert len(read.findings) == 2
    assert read.known == {"PyPI": 1, "Debian": 1}


def test_debians_tracker(tmp_path: Path) -> None:
    data = tracker(
        "openssl",
        CVE_2024_0001={"status": "resolved", "fixed_version": "3.0.14-1", "urgency": "not yet assigned"},
        CVE_2024_0002={"status": "resolved", "fixed_version": "3.0.9-1", "urgency": "high"},
        CVE_2024_0003={"status": "resolved", "fixed_version": "0", "urgency": "high"},
        CVE_2024_0004={"status": "open", "urgency": "low", "nodsa": "Minor issue"},
        CVE_2024_0005={"status": "open", "urgency": "unimportant"},
        CVE_2024_0006={"status": "undetermined", "urgency": "low"},
    )
    rows = {f.id: (f.fixed, f.reason) for f in found(tmp_path, data)}
    assert rows == {
        "CVE-2024-0001": ("3.0.14-1", ""),
        "CVE-2024-0004": ("", ""),
        "CVE-2024-0005": ("", "Debian: unimportant"),
        "CVE-2024-0006": ("", "Debian has not determined whether this release is vulnerable"),
    }


@pytest.mark.parametrize("text", ["", "3", "[1]", '{"openssl": 3}', '{"openssl": {"CVE-1": {}}}', "[" * 100_000])
def test_what_is_no_advisory_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(PxError, match=r"PX951.*: its format is another"):
        read_advisories([tmp_path / "x.json"], (PY,))
    with pytest.raises(PxError, match=r"PX951.*: No such file or directory\n"):
        read_advisories([tmp_path / "none.json"], (PY,))


@pytest.mark.parametrize(
    ("statement", "silent"),
    [
        ({"products": [{"@id": "pkg:pypi/jinja2@3.1.2"}]}, True),
        ({"products": [{"@id": "pkg:pypi/jinja2"}]}, True),
        ({"products": [{"@id": "pkg:pypi/Jinja2@3.1.2.0"}]}, True),
        ({"products": [{"@id": "pkg:pypi/jinja2@3.1.1"}]}, False),
        ({"products": [{"@id": "pkg:pypi/jinja2@none"}]}, False),
        ({"products": [{"@id": "pkg:pypi/other"}]}, False),
        ({"products": [{"@id": "pkg:oci/app", "subcomponents": [{"@id": "pkg:pypi/jinja2"}]}]}, True),
        ({"products": [{"@id": "pkg:oci/app", "subcomponents": [{"@id": "pkg:pypi/other"}]}]}, False),
        ({"products": [{"@id": "app", "identifiers": {"purl": "pkg:pypi/jinja2@3.1.2"}}]}, True),
        ({"products": ["pkg:oci/app"]}, True),
        ({"vulnerability": {"name": "GHSA-h5c8-rqwp-cp95"}}, True),
        ({"vulnerability": "CVE-2024-22195"}, True),
        ({"vulnerability": {"name": "CVE-2024-1"}}, False),
        ({"status": "under_investigation"}, False),
        ({"status": "affected", "action_statement": "update"}, False),
        ({"status": "fixed"}, True),
    ],
)
def test_an_openvex_statement(statement: dict[str, Any], silent: bool, tmp_path: Path) -> None:
    row = {"vulnerability": {"name": "CVE-2024-22195"}, "status": "not_affected", "impact_statement": "no xmlattr here"}
    (tmp_path / "vex.json").write_text(json.dumps(vex(row | statement)))
    (judged,) = apply(found(tmp_path, JINJA2), read_vex(tmp_path / "vex.json"))
    assert bool(judged.reason) is silent
    if judged.reason.startswith("not"):
        assert judged.reason == "not_affected: no xmlattr here"


def test_a_source_package_is_meant_by_the_name_of_a_binary_one(tmp_path: Path) -> None:
    row = {
        "vulnerability": {"name": "CVE-2024-6119"},
        "status": "not_affected",
        "justification": "vulnerable_code_not_present",
    }
    purl = "pkg:deb/debian/libssl3@3.0.13-1~deb12u1?arch=amd64&distro=debian-12"
    (tmp_path / "vex.json").write_text(json.dumps(vex(row | {"products": [{"@id": purl}]})))
    (judged,) = apply(found(tmp_path, OPENSSL), read_vex(tmp_path / "vex.json"))
    assert judged.reason == "not_affected: vulnerable_code_not_present"


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"@context": "https://example.org", "statements": []},
        vex({"vulnerability": "X", "status": "not_affected"}),
    ],
)
def test_an_ignore_list_without_reasons_is_refused(document: object, tmp_path: Path) -> None:
    (tmp_path / "vex.json").write_text(json.dumps(document))
    with pytest.raises(PxError, match="PX951"):
        read_vex(tmp_path / "vex.json")


def test_sarif(tmp_path: Path) -> None:
    one, other = found(tmp_path, JINJA2, OPENSSL)
    document = json.loads(sarif([one, replace(other, reason="why")], {PYPI: "uv.lock", DEBIAN: "px-pins.json"}))
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["CVE-2024-22195", "CVE-2024-6119"]
    first, second = run["results"]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "px-pins.json"
    assert second["level"] == "warning"
    assert second["suppressions"] == [{"kind": "external", "justification": "why"}]
    assert "suppressions" not in first
