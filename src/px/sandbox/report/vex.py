"""The ignore list of an audit: OpenVEX documents, which say why an advisory does not matter here.

https://github.com/openvex/spec
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from px import bounds
from px.errors import PxError
from px.sandbox.report.advisories import PYPI

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from px.sandbox.report.advisories import Finding, Subject

# These two say that nothing needs to be done; the others do not silence a finding.
_SILENT = ("not_affected", "fixed")
_KINDS = ("pkg:deb/", "pkg:pypi/")


@dataclass(frozen=True)
class Statement:
    """One statement: an advisory, the packages that it is about (all if there are none), and why."""

    names: frozenset[str]
    purls: tuple[str, ...]
    reason: str


def read_vex(path: Path) -> list[Statement]:
    try:
        document = json.loads(path.read_bytes())
        if "openvex" not in str(document["@context"]):
            raise PxError("PX951", path=path, problem="its @context is not OpenVEX's")
        rows = [row for row in document["statements"] if row["status"] in _SILENT]
        return [_statement(path, row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise PxError("PX951", path=path, problem=bounds.unread(e)) from e


def _statement(path: Path, row: dict[str, Any]) -> Statement:
    about = row["vulnerability"]
    # Before version 0.2 this was a text.
    about = {"name": about} if isinstance(about, str) else about
    names = frozenset(str(n) for n in (about.get("name"), about.get("@id"), *about.get("aliases", ())) if n)
    reason = row.get("impact_statement") or row.get("justification") or row.get("status_notes")
    if row["status"] == "not_affected" and not reason:
        problem = f"the statement about {', '.join(sorted(names))} has neither a justification nor an impact_statement"
        raise PxError("PX951", path=path, problem=problem)
    products = [p if isinstance(p, dict) else {"@id": p} for p in row.get("products", ())]
    purls = tuple(purl for product in products for purl in _purls(product))
    return Statement(names, purls, f"{row['status']}: {reason or 'the fix is in'}")


def _purls(product: dict[str, Any]) -> list[str]:
    """The packages that a product stands for: itself, or what it says is in it; none if it is an image."""
    inside = [p if isinstance(p, dict) else {"@id": p} for p in product.get("subcomponents", ())]
    found = [str(p.get("identifiers", {}).get("purl") or p.get("@id", "")) for p in [product, *inside]]
    return [purl for purl in found if purl.startswith(_KINDS)]


def apply(findings: Sequence[Finding], statements: Collection[Statement]) -> list[Finding]:
    """The findings, with the reason of the first statement that silences each."""

    def judged(finding: Finding) -> Finding:
        for statement in statements:
            known = statement.names & {finding.id, *finding.names}
            if known and (not statement.purls or any(_same(purl, finding.subject) for purl in statement.purls)):
                return replace(finding, reason=statement.reason)
        return finding

    return [judged(finding) for finding in findings]


def _same(purl: str, subject: Subject) -> bool:
    """Whether a purl means this package: by name, and by version if it has one; for Debian, source or binary."""
    path = unquote(purl.partition("?")[0]).partition("#")[0]
    kind, _, rest = path.removeprefix("pkg:").partition("/")
    name, _, version = rest.rpartition("/")[2].partition("@")
    ours = "pypi" if subject.ecosystem == PYPI else "deb"
    name = canonicalize_name(name) if ours == "pypi" else name
    if kind != ours or name not in (subject.name, *subject.binaries):
        return False
    return version in ("", subject.version) or subject.key(version) == subject.key(subject.version) is not None
