"""The part of DER (X.690) that certificates and public keys need: values with a tag, a length and content.

A length below 128 is one byte.  Otherwise the first byte is 128 plus the number of bytes of the length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def values(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each DER value in ``content``."""
    # Lengths are not checked: the input is a certificate of a pinned package, or a key that the user trusts.
    at = 0
    while at < len(content):
        tag, length = content[at], content[at + 1]
        at += 2
        if length & 0x80:
            octets = length & 0x7F
            length = int.from_bytes(content[at : at + octets], "big")
            at += octets
        yield tag, content[at : at + length]
        at += length


def encoded(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    octets = (len(content).bit_length() + 7) // 8
    return bytes([tag, 0x80 | octets]) + len(content).to_bytes(octets, "big") + content
