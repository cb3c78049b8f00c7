"""Trusted certificates: what ``update-ca-certificates`` makes, and OpenSSL's directory of them."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from px.debian.der import encoded, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

SHARED = "usr/share/ca-certificates"
TRUSTED = "etc/ssl/certs"
BUNDLE = f"{TRUSTED}/ca-certificates.crt"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_NAMES = str.maketrans({" ": "_", ",": "_", "(": "=", ")": "="})
_WHITE = re.compile(rb"[ \t\n\v\f\r]+")
_CONF_HEAD = "# Certificates that are trusted; made from the ca-certificates package.\n"


def certificates(image: Image, _: Sequence[Unpacked]) -> None:
    """The bundle, a link per certificate, and a link per subject hash, which is how OpenSSL finds them."""
    shared = sorted(p for p in image.paths() if p.startswith(f"{SHARED}/") and p.endswith(".crt"))
    names = [path.removeprefix(f"{SHARED}/") for path in shared]
    image.file("etc/ca-certificates.conf", (_CONF_HEAD + "".join(f"{n}\n" for n in names)).encode())
    bundle, links = [], []
    for path in shared:
        content = image.read(path)
        bundle.append(content if content.endswith(b"\n") else content + b"\n")
        pem = path.rpartition("/")[2].removesuffix(".crt").translate(_NAMES) + ".pem"
        image.link(f"{TRUSTED}/{pem}", f"/{path}")
        links.append((pem, content))
    image.file(BUNDLE, b"".join(bundle))
    for name, target in hash_links(sorted(links)):
        image.link(f"{TRUSTED}/{name}", target)


def openssl_directory(image: Image, _: Sequence[Unpacked]) -> None:
    """``/usr/lib/ssl``, where libssl looks; the openssl package, which has it, is not in a base."""
    image.directory("etc/ssl/private", 0o700)
    for name in ("certs", "private", "openssl.cnf"):
        image.link(f"usr/lib/ssl/{name}", f"/etc/ssl/{name}")
    image.file("etc/ssl/openssl.cnf", b"openssl_conf = openssl_init\n\n[openssl_init]\n")


def hash_links(certificates: Sequence[tuple[str, bytes]]) -> Iterator[tuple[str, str]]:
    """``<subject hash>.<n> -> name`` for every certificate, numbered where subjects are the same."""
    taken: dict[str, list[str]] = {}
    for name, pem in certificates:
        der = der_of(pem)
        fingerprint = hashlib.sha256(der).hexdigest()
        seen = taken.setdefault(subject_hash(der), [])
        if fingerprint not in seen:
            yield f"{subject_hash(der)}.{len(seen)}", name
            seen.append(fingerprint)


def der_of(pem: bytes) -> bytes:
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("no certificate in the file")
    return base64.b64decode(found[1])


def subject_hash(der: bytes) -> str:
    """OpenSSL's X509_NAME_hash: the first four bytes of the SHA-1 of the canonical subject."""
    digest = hashlib.sha1(_canonical_name(_subject(der)), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:4], 'little'):08x}"


def _subject(der: bytes) -> bytes:
    certificate = next(values(der))[1]
    fields = values(next(values(certificate))[1])
    # version [0], serial, signature algorithm, issuer, validity, subject; version may be absent
    found = [content for tag, content in fields if tag != 0xA0]
    return found[4]


def _canonical_name(name: bytes) -> bytes:
    """The sets of a name, strings as UTF-8 in lower case with white space collapsed, without the outer header."""
    out = b""
    for _, one_set in values(name):
        pairs = b""
        for _, pair in values(one_set):
            (oid_tag, oid), (tag, value) = values(pair)
            pairs += encoded(0x30, encoded(oid_tag, oid) + _canonical_value(tag, value))
        out += encoded(0x31, pairs)
    return out


_ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 26: "ascii", 28: "utf-32-be", 30: "utf-16-be"}


def _canonical_value(tag: int, value: bytes) -> bytes:
    if tag not in _ENCODINGS:
        return encoded(tag, value)
    text = value.decode(_ENCODINGS[tag]).encode("utf-8")
    text = _WHITE.sub(b" ", text.strip(b" \t\n\v\f\r"))
    # Lower case for ASCII only: OpenSSL leaves other letters alone, and so does bytes.lower.
    return encoded(12, text.lower())
