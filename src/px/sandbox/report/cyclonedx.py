"""The bill of materials: CycloneDX 1.6, the same bytes for the same image.

CycloneDX rather than SPDX because it takes licences as packages state them: SPDX allows only expressions
over its own list, and Debian's names are not on it.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import TYPE_CHECKING
from urllib.parse import quote

from px import __version__
from px.oci.config import timestamp
from px.oci.documents import Json, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

MEDIA_TYPE = "application/vnd.cyclonedx+json"
_NAMESPACE = uuid.UUID("6d2f5f0e-6a0c-5d0b-9a53-0d4c2f0a7b11")
_KINDS = {"debian": "deb", "alpine": "apk"}
_CLASSIFIER = "License :: OSI Approved :: "


@dataclass(frozen=True)
class SystemPackage:
    """A package of the base or of a capability: Debian's or Alpine's."""

    name: str
    version: str
    architecture: str
    sha256: str
    distribution: str
    """As in ``debian-12``."""
    licences: tuple[str, ...] = ()
    source: str = ""
    """The source package, where it has another name or version: what security trackers speak of."""

    @property
    def purl(self) -> str:
        vendor = self.distribution.partition("-")[0]
        upstream = f"&upstream={quote(self.source, safe='')}" if self.source and self.source != self.name else ""
        version = quote(self.version, safe="")
        where = f"arch={self.architecture}&distro={quote(self.distribution, safe='')}{upstream}"
        return f"pkg:{_KINDS[vendor]}/{vendor}/{quote(self.name, safe='')}@{version}?{where}"


@dataclass(frozen=True)
class PythonPackage:
    """A Python distribution of the env."""

    name: str
    version: str
    sha256: str = ""
    """Of the wheel or sdist that the lock pins."""
    licences: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        name = re.sub(r"[-_.]+", "-", self.name).lower()
        return f"pkg:pypi/{quote(name, safe='')}@{quote(self.version, safe='')}"


@dataclass(frozen=True)
class CPython:
    """A CPython that is not the base's own package."""

    version: str
    name: str = "cpython"
    sha256: str = ""
    licences: tuple[str, ...] = ("PSF-2.0",)

    @property
    def purl(self) -> str:
        return f"pkg:generic/cpython@{quote(self.version, safe='')}"


Package = SystemPackage | PythonPackage | CPython


@dataclass(frozen=True)
class Subject:
    """The image that the document is about."""

    name: str
    version: str
    digest: str
    created: int


def bill_of_materials(subject: Subject, packages: Iterable[Package]) -> bytes:
    """The document; the order in which packages are given does not matter."""
    components = {component["bom-ref"]: component for component in map(_component, packages)}
    main = {
        "bom-ref": f"image:{subject.digest}",
        "type": "container",
        "name": subject.name,
        "version": subject.version,
        "hashes": [{"alg": "SHA-256", "content": subject.digest.removeprefix("sha256:")}],
    }
    ordered = [components[ref] for ref in sorted(components)]
    document: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(subject.created),
            "tools": {"components": [{"type": "application", "name": "px", "version": __version__}]},
            "component": main,
        },
        "components": ordered,
        "dependencies": [{"ref": main["bom-ref"], "dependsOn": [component["bom-ref"] for component in ordered]}],
    }
    # The number that makes a document unique is made of the document.
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(_NAMESPACE, encode(document).decode())}"
    return encode(document)


def _component(package: Package) -> Json:
    found: Json = {
        "bom-ref": package.purl,
        "type": "library",
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }
    if package.sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": package.sha256}]
    if package.licences:
        found["licenses"] = _licences(package.licences)
    return found


def _licences(stated: tuple[str, ...]) -> list[Json]:
    """A single SPDX expression as such; everything else under the names that the package uses."""
    if len(stated) == 1 and (expression := spdx_expression(stated[0])):
        return [{"expression": expression}]
    return [{"license": {"name": name}} for name in sorted(set(stated))]


def spdx_expression(text: str) -> str | None:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None


def python_licences(metadata: str) -> tuple[str, ...]:
    """The licence that a distribution's METADATA states: the expression, else classifiers, else a short text."""
    headers = HeaderParser().parsestr(metadata)
    expression = str(headers.get("License-Expression") or "").strip()
    if expression:
        return (expression,)
    classifiers = [str(line) for line in headers.get_all("Classifier") or []]
    named = [line.removeprefix(_CLASSIFIER) for line in classifiers if line.startswith(_CLASSIFIER)]
    if named:
        return tuple(sorted(named))
    text = str(headers.get("License") or "").strip()
    # Some put the whole licence here; a name is short and has one line.
    return (text,) if text and "\n" not in text and len(text) <= 100 and text.upper() != "UNKNOWN" else ()


def debian_licences(copyright_file: str) -> tuple[str, ...]:
    """The short names of a machine-readable ``debian/copyright``; older, free-form files state none."""
    if not copyright_file.lstrip().lower().startswith("format:"):
        return ()
    names = re.findall(r"^License:[ \t]*(\S[^\n]*?)[ \t]*$", copyright_file, re.MULTILINE)
    return tuple(sorted(set(names)))
