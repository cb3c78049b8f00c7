"""The audit: what is in the project's sandbox and image, against advisories that the user has or px fetches."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from px import console
from px.debian.mirror import domain
from px.errors import PxError
from px.http import FetchError, Http
from px.project.state import Target
from px.sandbox.definition import derive
from px.sandbox.image import ensure_layers
from px.sandbox.report.advisories import DEBIAN, PYPI, Advisories, Subject, read_advisories
from px.sandbox.report.bill import packages_in
from px.sandbox.report.cyclonedx import PythonPackage, SystemPackage
from px.sandbox.report.sarif import sarif
from px.sandbox.report.vex import apply, read_vex
from px.store.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from px.project.context import Context
    from px.project.situation import Situation
    from px.sandbox.definition import Derived
    from px.sandbox.report.advisories import Finding
    from px.sandbox.report.cyclonedx import Package

TRACKER = "debian-tracker"
"""Stands for the data of Debian's security tracker, which px fetches."""


@dataclass(frozen=True)
class Audit:
    """The vulnerable packages, those that are ignored with the reason, and how much the advisories know."""

    findings: tuple[Finding, ...]
    ignored: tuple[Finding, ...]
    packages: int
    known: dict[str, int]
    files: dict[str, str]

    def lines(self) -> list[str]:
        lines = [f"{f.id}  {_label(f)}  {_fix(f)}\n    {f.severity}: {f.summary}" for f in self.findings]
        lines += [f"ignored: {f.id}  {_label(f)}\n    {f.reason}" for f in self.ignored]
        read = ", ".join(f"{count} for {name}" for name, count in self.known.items())
        return [*lines, f"{self.summary} (advisories read: {read})"]

    @property
    def summary(self) -> str:
        found, packages = console.counted(len(self.findings), "finding"), console.counted(self.packages, "package")
        return f"{found} in {packages}, {len(self.ignored)} ignored"

    def as_json(self) -> dict[str, object]:
        rows = {"findings": self.findings, "ignored": self.ignored}
        return {"packages": self.packages, "advisories": self.known} | {
            name: [asdict(f) for f in found] for name, found in rows.items()
        }

    def sarif(self) -> bytes:
        return sarif([*self.findings, *self.ignored], self.files)


def _label(finding: Finding) -> str:
    subject = finding.subject
    inside = f" ({', '.join(subject.binaries)})" if subject.binaries not in ((), (subject.name,)) else ""
    return f"{subject.name} {subject.version}{inside}"


def _fix(finding: Finding) -> str:
    return f"fixed in {finding.fixed}" if finding.fixed else "not fixed yet"


def audit(situation: Situation, advisories: Sequence[str], ignore: Sequence[Path], *, fixable: bool = False) -> Audit:
    """Compare the sandbox that ``px run --sandbox`` uses with the advisories."""
    if not advisories:
        problem, example = "no advisories are named", f"px sandbox audit --advisories {TRACKER} --advisories osv/"
        raise PxError("PX040", option="px sandbox", value="audit", problem=problem, example=example)
    statements = [statement for path in ignore for statement in read_vex(path)]
    paths = [_local(situation.context, name) for name in advisories]
    derived = derive(situation, situation.selection(Target.SANDBOX))
    subjects = list(_subjects(packages_in(derived, ensure_layers(derived)), derived))
    found = read_advisories(paths, subjects)
    _warn(found)
    judged = apply(found.findings, statements)
    if fixable:
        judged = [f for f in judged if f.fixed]
    count = sum(max(1, len(s.binaries)) for s in subjects)
    project, manifest = situation.project, derived.manifest
    system = manifest.pins.name if manifest.pins else project.manifest.path.name
    return Audit(
        tuple(f for f in judged if not f.reason),
        tuple(f for f in judged if f.reason),
        count,
        found.known,
        {PYPI: project.lock.name, DEBIAN: system},
    )


def _subjects(packages: Iterable[Package], derived: Derived) -> list[Subject]:
    """Python distributions, and the source packages of Debian's: advisories speak of sources."""
    if derived.base.is_alpine:
        console.warn("px reads no advisories for Alpine's packages: only the Python packages are audited.")
    found: list[Subject] = []
    sources: dict[tuple[str, str], list[str]] = {}
    for package in packages:
        if isinstance(package, PythonPackage):
            found.append(Subject(PYPI, canonicalize_name(package.name), package.version, purl=package.purl))
        elif isinstance(package, SystemPackage) and not derived.base.is_alpine:
            name, _, version = package.source.partition("@")
            sources.setdefault((name or package.name, version or package.version), []).append(package.name)
    release, codename = derived.base.name.partition("-")[2], derived.base.lock.codename
    for (name, version), binaries in sorted(sources.items()):
        purl = f"pkg:deb/debian/{name}@{version}"
        found.append(Subject(DEBIAN, name, version, release, codename, purl, tuple(sorted(binaries))))
    return found


def _warn(found: Advisories) -> None:
    """An audit that knows nothing finds nothing: that must not look like a good result."""
    for ecosystem, count in found.known.items():
        if not count and any(s.ecosystem == ecosystem for s in found.subjects):
            console.warn(f"None of these files has advisories for {ecosystem}: its packages were not audited.")


def _local(context: Context, name: str) -> Path:
    """The file with the advisories; one that has an address is fetched, and kept for when there is no network."""
    if name == TRACKER:
        name = f"https://security-tracker.{domain()}/tracker/data/json"
    if not name.startswith(("http://", "https://")):
        return Path(name)
    suffix = ".zip" if name.endswith(".zip") else ".json"
    kept = context.home.cache("advisories") / (hashlib.sha256(name.encode()).hexdigest() + suffix)
    if not context.offline:
        try:
            write_atomically(kept, Http().get(name), durable=False)
        except FetchError as e:
            raise PxError("PX951", path=console.redact(name), problem=e.reason, fix=[_OFFLINE]) from e
    elif not kept.is_file():
        raise PxError("PX951", path=console.redact(name), problem="px is offline and has never fetched it")
    return kept


_OFFLINE = "Use what was fetched before (--offline), or a file that you have."
