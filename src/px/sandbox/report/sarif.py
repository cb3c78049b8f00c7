"""An audit as SARIF 2.1.0, which code hosts show beside the code."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from px import __version__
from px.oci.documents import Json, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.sandbox.report.advisories import Finding

_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "moderate": "warning", "low": "note"}


def sarif(findings: Sequence[Finding], files: dict[str, str]) -> bytes:
    """The document; ``files`` says which file of the project decides about the packages of an ecosystem."""
    rules = {f.id: {"id": f.id, "shortDescription": {"text": f.summary or f.id}} for f in findings}
    run: Json = {
        "tool": {"driver": {"name": "px", "version": __version__, "rules": [rules[i] for i in sorted(rules)]}},
        "results": [_result(finding, files[finding.subject.ecosystem]) for finding in findings],
    }
    return encode({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]})


def _result(finding: Finding, file: str) -> Json:
    subject = finding.subject
    fix = f"fixed in {finding.fixed}" if finding.fixed else "there is no fixed version"
    place = {"artifactLocation": {"uri": file}, "region": {"startLine": 1}}
    found: Json = {
        "ruleId": finding.id,
        "level": _LEVELS.get(finding.severity, "warning"),
        "message": {"text": f"{subject.name} {subject.version}: {finding.summary or finding.id} ({fix})"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {
            "package": hashlib.sha256(f"{subject.ecosystem} {subject.name} {finding.id}".encode()).hexdigest()
        },
    }
    if finding.reason:
        found["suppressions"] = [{"kind": "external", "justification": finding.reason}]
    return found
