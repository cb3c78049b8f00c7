"""What an image's bill of materials lists: the system packages of its layers, its Python and its distributions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from px.alpine.fixups import INSTALLED
from px.debian.fixups.status import DIRECTORY as STATUS
from px.sandbox.report import cyclonedx

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.env.packages import Package
    from px.sandbox.definition import Derived
    from px.sandbox.layers.base import Base
    from px.sandbox.layers.layer import Layer


def bill_of(
    subject: cyclonedx.Subject, derived: Derived, layers: Sequence[Layer], extra: Sequence[Package] = ()
) -> bytes:
    """The document about one image."""
    return cyclonedx.bill_of_materials(subject, packages_in(derived, layers, extra))


def packages_in(derived: Derived, layers: Sequence[Layer], extra: Sequence[Package] = ()) -> list[cyclonedx.Package]:
    """Everything that an image is made of; ``extra`` are packages beside those of the lock."""
    store, python = derived.ground.context.store, derived.ground.python
    packages: list[cyclonedx.Package] = [cyclonedx.CPython(python.runtime.version)] if python.layer else []
    packages += _system(derived.base, layers)
    for package in sorted([*derived.profile.packages, *extra], key=lambda p: p.name):
        payload = store.payload("pkg-build", package.oid)
        metadata = store.tree("pkg-build", package.oid) / "lib" / str(payload["dist_info"]) / "METADATA"
        licences = cyclonedx.python_licences(metadata.read_text(encoding="utf-8", errors="replace"))
        packages.append(cyclonedx.PythonPackage(package.name, package.version, str(payload["source"]), licences))
    return packages


def _system(base: Base, layers: Sequence[Layer]) -> Iterator[cyclonedx.SystemPackage]:
    for layer in layers:
        for p in layer.packages:
            source, licences = _alpine(layers, p.name) if base.is_alpine else _debian(layers, p.name)
            yield cyclonedx.SystemPackage(p.name, p.version, p.architecture, p.sha256, base.name, licences, source)


def _debian(layers: Sequence[Layer], name: str) -> tuple[str, tuple[str, ...]]:
    """(source package, licences); the source as ``openssl``, or ``bash@5.2.15-2`` where its version is another."""
    source = re.search(r"^Source: (\S+)(?: \((\S+)\))?$", _text(layers, f"{STATUS}/{name}"), re.MULTILINE)
    spelt = "@".join(filter(None, source.groups())) if source else ""
    return spelt, cyclonedx.debian_licences(_text(layers, f"usr/share/doc/{name}/copyright"))


def _alpine(layers: Sequence[Layer], name: str) -> tuple[str, tuple[str, ...]]:
    """(source package, licences), from apk's database: of several layers the last has all packages."""
    stanzas = _text(layers[::-1], INSTALLED).split("\n\n")
    found = next((s for s in stanzas if f"P:{name}" in s.splitlines()[:1]), "")
    rows = {line[:1]: line[2:] for line in found.splitlines()}
    return rows.get("o", ""), (rows["L"],) if "L" in rows else ()


def _text(layers: Sequence[Layer], path: str) -> str:
    for layer in layers:
        file = layer.tree / path
        if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return ""
