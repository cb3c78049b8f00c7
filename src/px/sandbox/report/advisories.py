"""Advisories: files in OSV's format, or in that of Debian's security tracker, and which packages they speak of.

OSV: https://ossf.github.io/osv-schema.  The tracker: one JSON object, source package -> CVE -> releases.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from px import bounds
from px.debian.versions import sort_key
from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

PYPI, DEBIAN = "PyPI", "Debian"


@dataclass(frozen=True)
class Subject:
    """A package as advisories name it: a Python distribution, or a source package of a release of Debian."""

    ecosystem: str
    name: str
    version: str
    release: str = ""
    """12, for Debian."""
    codename: str = ""
    purl: str = ""
    binaries: tuple[str, ...] = ()
    """The packages in the sandbox that were built from it."""

    def key(self, version: str) -> Any:
        """What versions are ordered by; None for one that the ecosystem does not know."""
        try:
            return Version(version) if self.ecosystem == PYPI else sort_key(version)
        except (InvalidVersion, ValueError):
            return None


@dataclass(frozen=True)
class Finding:
    """A package that an advisory says is vulnerable."""

    subject: Subject
    id: str
    names: tuple[str, ...]
    """Every name of the advisory, its CVE among them."""
    summary: str
    severity: str
    fixed: str
    """The first version that is not vulnerable; empty if there is none."""
    reason: str = ""
    """Why it is ignored; empty if it is not."""


@dataclass
class Advisories:
    """What some files say about some packages."""

    subjects: Collection[Subject]
    known: dict[str, int]
    """How many advisories were read, for each ecosystem."""
    findings: list[Finding]


def read_advisories(paths: Collection[Path], subjects: Collection[Subject]) -> Advisories:
    """Compare packages with every advisory in these files (JSON, a zip of JSON files, or a directory of either)."""
    found = Advisories(subjects, {PYPI: 0, DEBIAN: 0}, [])
    by_name: dict[tuple[str, str], list[Subject]] = {}
    for subject in subjects:
        by_name.setdefault((subject.ecosystem, subject.name), []).append(subject)
    for path in paths:
        try:
            for document in _documents(path):
                _read(document, by_name, found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile) as e:
            raise PxError("PX951", path=path, problem=bounds.unread(e)) from e
    found.findings = _unique(found.findings)
    return found


def _documents(path: Path) -> Iterator[Any]:
    if path.is_dir():
        for inside in sorted(p for p in path.rglob("*") if p.suffix in (".json", ".zip")):
            yield from _documents(inside)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(n for n in archive.namelist() if n.endswith(".json")):
                yield json.loads(archive.read(name))
    else:
        yield json.loads(path.read_bytes())


def _read(document: Any, subjects: dict[tuple[str, str], list[Subject]], found: Advisories) -> None:
    if isinstance(document, dict) and "vulns" in document:
        document = document["vulns"]  # an answer of OSV's service
    if isinstance(document, list):
        for one in document:
            _read(one, subjects, found)
    elif "id" in document and "modified" in document:
        _osv(document, subjects, found)
    else:
        _tracker(document, subjects, found)


# --- OSV -------------------------------------------------------------------------------------------------------


def _osv(document: dict[str, Any], subjects: dict[tuple[str, str], list[Subject]], found: Advisories) -> None:
    if document.get("withdrawn"):
        return
    for ecosystem in {
        str(row.get("package", {}).get("ecosystem", "")).partition(":")[0] for row in _affected(document)
    }:
        if ecosystem in found.known:
            found.known[ecosystem] += 1
    for row in _affected(document):
        package = row.get("package", {})
        ecosystem, _, release = str(package.get("ecosystem", "")).partition(":")
        name = str(package.get("name", ""))
        for subject in subjects.get((ecosystem, canonicalize_name(name) if ecosystem == PYPI else name), ()):
            if (not release or release == subject.release) and (fixed := _vulnerable(subject, row)) is not None:
                names = (document["id"], *document.get("aliases", ()), *document.get("upstream", ()))
                summary = document.get("summary") or document.get("details", "")
                found.findings.append(
                    Finding(subject, _known_as(names), names, _first_line(summary), _severity(document, row), fixed)
                )


def _affected(document: dict[str, Any]) -> list[dict[str, Any]]:
    return list(document.get("affected") or [])


def _vulnerable(subject: Subject, row: dict[str, Any]) -> str | None:
    """The version that fixes it, or an empty text, if the subject is vulnerable; None if it is not."""
    for ranged in row.get("ranges") or []:
        if ranged.get("type") == "ECOSYSTEM" and (fixed := _in_range(subject, ranged.get("events") or [])) is not None:
            return fixed
    own = subject.key(subject.version)
    listed = [subject.key(version) for version in row.get("versions") or []]
    return "" if own is not None and own in listed else None


def _in_range(subject: Subject, events: list[dict[str, str]]) -> str | None:
    # The algorithm of the specification: the events in the order of their versions switch on and off.
    own = subject.key(subject.version)
    if own is None:
        return None
    rows = [(kind, version, subject.key(version)) for event in events for kind, version in event.items()]
    # "0" stands before every version, also where it is one.
    first = [row for row in rows if row[1] == "0"]
    rest = sorted((row for row in rows if row[1] != "0" and row[2] is not None), key=lambda row: row[2])
    vulnerable, fixed = False, ""
    for kind, version, key in [*first, *rest]:
        if kind == "introduced" and (version == "0" or own >= key):
            vulnerable, fixed = True, ""
        elif (kind == "fixed" and own >= key) or (kind == "last_affected" and own > key):
            vulnerable = False
        elif kind == "fixed" and vulnerable and not fixed:
            fixed = version
    return fixed if vulnerable else None


def _severity(document: dict[str, Any], row: dict[str, Any]) -> str:
    for place in (row.get("ecosystem_specific"), row.get("database_specific"), document.get("database_specific")):
        for key in ("severity", "urgency"):
            if isinstance(place, dict) and isinstance(place.get(key), str):
                return str(place[key]).lower()
    return "unknown"


# --- Debian's tracker ------------------------------------------------------------------------------------------


def _tracker(document: dict[str, Any], subjects: dict[tuple[str, str], list[Subject]], found: Advisories) -> None:
    for source, advisories in document.items():
        for name, row in advisories.items():
            releases = row["releases"]
            found.known[DEBIAN] += 1
            for subject in subjects.get((DEBIAN, source), ()):
                if (said := releases.get(subject.codename)) is not None:
                    found.findings += _said(subject, name, row, said)


def _said(subject: Subject, name: str, row: dict[str, Any], said: dict[str, Any]) -> list[Finding]:
    fixed, urgency, reason = str(said.get("fixed_version", "")), str(said.get("urgency", "unknown")), ""
    # "0" is the tracker's way to say that the release was never vulnerable.
    if said["status"] == "resolved" and (fixed == "0" or sort_key(subject.version) >= sort_key(fixed)):
        return []
    if said["status"] == "undetermined":
        reason = "Debian has not determined whether this release is vulnerable"
    elif urgency in ("unimportant", "end-of-life"):
        reason = f"Debian: {urgency}"
    return [Finding(subject, name, (name,), _first_line(str(row.get("description", ""))), urgency, fixed, reason)]


# --- both ------------------------------------------------------------------------------------------------------


def _known_as(names: tuple[str, ...]) -> str:
    """The CVE, if there is exactly one: two databases may give the same advisory other names."""
    cves = {found[0] for name in names if (found := re.search(r"CVE-\d+-\d+", name))}
    return cves.pop() if len(cves) == 1 else names[0]


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 160 else line[:159] + "…"


def _unique(findings: list[Finding]) -> list[Finding]:
    """Each advisory once for each package; what one file says counts over another's reason to ignore it."""
    best: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.subject.ecosystem, finding.subject.name, finding.id)
        known = best.get(key)
        if known is None or (known.reason and not finding.reason) or (not known.fixed and finding.fixed):
            best[key] = finding
    return [best[key] for key in sorted(best)]
