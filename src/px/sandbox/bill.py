"""What an image's bill of materials lists: the system packages of its layers, its Python and its distributions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from px.debian.fixups.status import DIRECTORY as STATUS
from px.oci import sbom
from px.sandbox.bases import is_alpine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.sandbox.bases import Layer
    from px.sandbox.sync import Derived
    from px.store.objects import Store


def bill_of(store: Store, subject: sbom.Subject, derived: Derived, layers: Sequence[Layer]) -> bytes:
    """The document about one image."""
    packages: list[sbom.Package] = [sbom.Interpreter(derived.python.runtime.version)] if derived.python.layer else []
    packages += _system(derived.base.name, layers)
    for package in derived.profile.packages:
        payload = store.payload("pkg-build", package.oid)
        metadata = store.tree("pkg-build", package.oid) / "lib" / str(payload["dist_info"]) / "METADATA"
        licences = sbom.python_licences(metadata.read_text(encoding="utf-8", errors="replace"))
        packages.append(sbom.PythonPackage(package.name, package.version, str(payload["source"]), licences))
    return sbom.bill_of_materials(subject, packages)


def _system(base: str, layers: Sequence[Layer]) -> Iterator[sbom.SystemPackage]:
    for layer in layers:
        for p in layer.packages:
            # What Alpine's database says in an image are names and versions.
            source, licences = ("", ()) if is_alpine(base) else _debian(layers, p.name)
            yield sbom.SystemPackage(p.name, p.version, p.architecture, p.sha256, base, licences, source)


def _debian(layers: Sequence[Layer], name: str) -> tuple[str, tuple[str, ...]]:
    """(source package, licences); the source as ``openssl``, or ``bash@5.2.15-2`` where its version is another."""
    source = re.search(r"^Source: (\S+)(?: \((\S+)\))?$", _text(layers, f"{STATUS}/{name}"), re.MULTILINE)
    spelt = "@".join(filter(None, source.groups())) if source else ""
    return spelt, sbom.debian_licences(_text(layers, f"usr/share/doc/{name}/copyright"))


def _text(layers: Sequence[Layer], path: str) -> str:
    for layer in layers:
        file = layer.tree / path
        if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return ""
