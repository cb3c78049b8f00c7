from __future__ import annotations

import json

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from px.sandbox.report.cyclonedx import (
    CPython,
    Package,
    PythonPackage,
    Subject,
    SystemPackage,
    bill_of_materials,
    debian_licences,
    python_licences,
)

SUBJECT = Subject("px.local/demo", "1.0", "sha256:" + "ab" * 32, 1_700_000_000)
PACKAGES: list[Package] = [
    CPython("3.12.9"),
    PythonPackage("Flask_Login", "1.0+x", "00" * 32, ("MIT",)),
    PythonPackage("odd", "1", "", ("Some Own License", "BSD")),
    PythonPackage("none", "2"),
    SystemPackage(
        "libpq5", "15.1-0+deb12u1", "amd64", "11" * 32, "debian-12", ("PostgreSQL", "GPL-2+"), "postgresql-15"
    ),
    SystemPackage("tzdata", "1:2024a", "all", "22" * 32, "debian-12"),
    SystemPackage("musl", "1.2.5-r0", "x86_64", "33" * 32, "alpine-3.20", ("MIT",)),
]


def test_the_schema_accepts_it() -> None:
    document = bill_of_materials(SUBJECT, PACKAGES).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document.replace('"library"', '"nonsense"')) is not None


def test_order_does_not_matter() -> None:
    assert bill_of_materials(SUBJECT, PACKAGES) == bill_of_materials(SUBJECT, [*reversed(PACKAGES), PACKAGES[0]])


def test_what_it_says() -> None:
    found = json.loads(bill_of_materials(SUBJECT, PACKAGES))
    components = {c["name"]: c for c in found["components"]}
    assert components["libpq5"]["purl"] == (
        "pkg:deb/debian/libpq5@15.1-0%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=postgresql-15"
    )
    assert components["tzdata"]["purl"].startswith("pkg:deb/debian/tzdata@1%3A2024a?")
    assert components["Flask_Login"]["purl"] == "pkg:pypi/flask-login@1.0%2Bx"
    assert components["Flask_Login"]["licenses"] == [{"expression": "MIT"}]
    assert components["cpython"]["purl"] == "pkg:generic/cpython@3.12.9"
    assert components["odd"]["licenses"] == [{"license": {"name": "BSD"}}, {"license": {"name": "Some Own License"}}]
    assert "licenses" not in components["none"]
    assert components["libpq5"]["hashes"] == [{"alg": "SHA-256", "content": "11" * 32}]
    assert found["metadata"]["component"]["hashes"][0]["content"] == "ab" * 32
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_an_alpine_package() -> None:
    found = json.loads(bill_of_materials(SUBJECT, PACKAGES))["components"]
    assert "pkg:apk/alpine/musl@1.2.5-r0?arch=x86_64&distro=alpine-3.20" in {c["purl"] for c in found}


def test_licences_of_python_packages() -> None:
    assert python_licences("Metadata-Version: 2.4\nName: a\nLicense-Expression: MIT OR Apache-2.0\n\nbody") == (
        "MIT OR Apache-2.0",
    )
    classified = "Name: a\nLicense: see file\nClassifier: License :: OSI Approved :: MIT License\n"
    assert python_licences(classified) == ("MIT License",)
    assert python_licences("Name: a\nLicense: BSD-3-Clause\n") == ("BSD-3-Clause",)
    assert python_licences("Name: a\nLicense: Copyright 2020\n        All rights reserved\n") == ()
    assert python_licences("Name: a\nLicense: UNKNOWN\n\nLicense: in the body") == ()


def test_licences_of_debian_packages() -> None:
    machine = (
        "Format: https://x\n\nFiles: *\nLicense: GPL-2+\n text\n\nFiles: y\nLicense: MIT\n\nLicense: GPL-2+\n text\n"
    )
    assert debian_licences(machine) == ("GPL-2+", "MIT")
    assert debian_licences("This package was debianized by …\nLicense: GPL\n") == ()
