"""Trusted certificates: the files that ``update-ca-certificates`` makes, and OpenSSL's directory."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from px.debian.fixups.der import encoded, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

SHARED = "usr/share/ca-certificates"
TRUSTED = "etc/ssl/certs"
BUNDLE = f"{TRUSTED}/ca-certificates.crt"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# update-ca-certificates replaces these characters in the names of its links.
_NAMES = str.maketrans({" ": "_", ",": "_", "(": "=", ")": "="})
_WHITE = re.compile(rb"[ \t\n\v\f\r]+")
_CONF_HEAD = "# Certificates that are trusted; made from the ca-certificates package.\n"


def certificates(image: Image, _: Sequence[Unpacked]) -> None:
    """Write the bundle, a link for each certificate, and a link for each subject hash.

    Some programs, such as curl, read the bundle.  OpenSSL itself looks in the directory, by the hash of the subject.
    """
    shared = sorted(p for p in image.paths() if p.startswith(f"{SHARED}/") and p.endswith(".crt"))
    # All certificates of the package are trusted, as after an installation without questions.
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
    """Make ``/usr/lib/ssl``, where libssl looks.  It belongs to the package openssl, which no base has."""
    image.directory("etc/ssl/private", 0o700)
    for name in ("certs", "private", "openssl.cnf"):
        image.link(f"usr/lib/ssl/{name}", f"/etc/ssl/{name}")
    image.file("etc/ssl/openssl.cnf", b"openssl_conf = openssl_init\n\n[openssl_init]\n")


def hash_links(certificates: Sequence[tuple[str, bytes]]) -> Iterator[tuple[str, str]]:
    """The links ``<subject hash>.<n> -> name``, as ``openssl rehash`` makes them.

    Certificates with the same subject are numbered.  A copy of the same certificate gets no second link.
    """
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
    """OpenSSL's X509_NAME_hash: the first four bytes of the SHA-1 of the subject in canonical form."""
    digest = hashlib.sha1(_canonical_name(_subject(der)), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:4], 'little'):08x}"


def _subject(der: bytes) -> bytes:
    certificate = next(values(der))[1]
    fields = values(next(values(certificate))[1])
    # RFC 5280: version [0] (optional), serial number, signature algorithm, issuer, validity, subject.
    found = [content for tag, content in fields if tag != 0xA0]
    return found[4]


def _canonical_name(name: bytes) -> bytes:
    """A name in the form that OpenSSL hashes (x509_name_canon in its x_name.c).

    Strings become UTF-8, in lower case, with single spaces.  The header of the outer sequence is left out.
    """
    out = b""
    for _, one_set in values(name):
        pairs = b""
        for _, pair in values(one_set):
            (oid_tag, oid), (tag, value) = values(pair)
            pairs += encoded(0x30, encoded(oid_tag, oid) + _canonical_value(tag, value))
        out += encoded(0x31, pairs)
    return out


# DER's string types by their tag.  OpenSSL leaves values of other types as they are.
_ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 26: "ascii", 28: "utf-32-be", 30: "utf-16-be"}


def _canonical_value(tag: int, value: bytes) -> bytes:
    if tag not in _ENCODINGS:
        return encoded(tag, value)
    text = value.decode(_ENCODINGS[tag]).encode("utf-8")
    text = _WHITE.sub(b" ", text.strip(b" \t\n\v\f\r"))
    # OpenSSL changes only ASCII letters to lower case, and so does bytes.lower.
    return encoded(12, text.lower())
