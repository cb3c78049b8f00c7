"""Java: the programs on the PATH, and its own store of trusted certificates.

Both are made by maintainer scripts on Debian, the first with shell variables that px does not read, the second by
running Java.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from px.debian.fixups.certificates import SHARED, der_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

_STORE = "etc/ssl/certs/java/cacerts"
_PASSWORD = "changeit"  # noqa: S105 - Java's default; the certificates in it are public


def java(image: Image, packages: Sequence[Unpacked]) -> None:
    """Link the runtime's programs into ``/usr/bin`` and write its certificates."""
    if not any(u.package.name.startswith("openjdk-") for u in packages):
        return
    for home in image.listing("usr/lib/jvm"):
        for name in image.listing(f"usr/lib/jvm/{home}/bin"):
            if f"usr/bin/{name}" not in image:
                image.link(f"usr/bin/{name}", f"/usr/lib/jvm/{home}/bin/{name}")
    if _STORE not in image:
        trusted = sorted(p for p in image.paths() if p.startswith(f"{SHARED}/") and p.endswith(".crt"))
        image.file(_STORE, keystore({path: der_of(image.read(path)) for path in trusted}))


def keystore(certificates: dict[str, bytes]) -> bytes:
    """A Java key store with trusted certificates: the format ``JKS``, which every Java reads."""
    rows = []
    for path, der in sorted(certificates.items()):
        alias = f"debian:{path.rpartition('/')[2].removesuffix('.crt').lower()}.pem".encode()
        # The second number is the time of the entry; it is always the same, as everything in an image is.
        head = struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">QH", 0, 5) + b"X.509"
        rows.append(head + struct.pack(">I", len(der)) + der)
    content = struct.pack(">III", 0xFEEDFEED, 2, len(rows)) + b"".join(rows)
    sealed = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content
    return content + hashlib.sha1(sealed, usedforsecurity=False).digest()
