"""Alpine's signatures: RSA over one gzip stream.  The signature's file name says which key made it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from px.debian.fixups.der import encoded, values
from px.debian.locking.release import UntrustedError

if TYPE_CHECKING:
    from pathlib import Path

    from px.alpine.apk import Stream

# The name comes from the archive: it must not lead out of the directory of keys.
_MEMBER = re.compile(r"\.SIGN\.(RSA|RSA256)\.([\w@+-][\w@+.-]{0,200})", re.ASCII)
# For each kind of signature its hash function, and the DER object identifier of that (RFC 8017, appendix B.1).
_DIGESTS = {"RSA": ("sha1", "2b0e03021a"), "RSA256": ("sha256", "608648016503040201")}


def verify(signature: Stream, signed: Stream, keys: Path) -> None:
    """Raise unless a key in the directory ``keys`` signed the compressed bytes of ``signed``."""
    unknown = []
    for member, content in signature.files().items():
        found = _MEMBER.fullmatch(member)
        if found is None:
            continue
        key = keys / found[2]
        if not key.is_file():
            unknown.append(found[2])
        elif _is_signed(key.read_text(encoding="ascii"), content, signed.packed, found[1]):
            return
        else:
            raise UntrustedError(f"its signature by {found[2]} is not good")
    raise UntrustedError(f"none of the keys in {keys} signed it (signed by: {', '.join(unknown) or 'nobody'})")


def _is_signed(pem: str, signature: bytes, content: bytes, algorithm: str) -> bool:
    try:
        modulus, exponent = _public_key(pem)
    except (ValueError, IndexError, StopIteration) as e:
        raise UntrustedError("the key that signed it is not an RSA public key in PEM") from e
    size = (modulus.bit_length() + 7) // 8
    name, oid = _DIGESTS[algorithm]
    digest = hashlib.new(name, content, usedforsecurity=False).digest()
    kind = encoded(0x30, encoded(0x06, _oid(oid)) + encoded(0x05, b""))
    info = encoded(0x30, kind + encoded(0x04, digest))
    # RFC 8017, section 9.2 (EMSA-PKCS1-v1_5).  px builds the whole block and compares it.  Parsing the decrypted block
    # instead is how implementations accepted forged signatures, with bytes of the attacker's choice behind the hash.
    expected = b"\x00\x01" + b"\xff" * (size - len(info) - 3) + b"\x00" + info
    if len(signature) != size:
        return False
    return pow(int.from_bytes(signature, "big"), exponent, modulus).to_bytes(size, "big") == expected


def _oid(hexadecimal: str) -> bytes:
    return bytes.fromhex(hexadecimal)


def _public_key(pem: str) -> tuple[int, int]:
    body = "".join(line for line in pem.splitlines() if line and not line.startswith("-----"))
    # SubjectPublicKeyInfo (RFC 5280): the algorithm, then a bit string that holds modulus and exponent.
    (_, outer), *_ = values(base64.b64decode(body))
    bits = next(content for tag, content in values(outer) if tag == 0x03)
    (_, key), *_ = values(bits[1:])  # the first byte is the number of unused bits, 0
    modulus, exponent = (int.from_bytes(content, "big") for _, content in values(key))
    return modulus, exponent
