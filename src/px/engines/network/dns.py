"""Just enough DNS to answer a stub resolver: one question, one address or none (RFC 1035)."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

A = 1
_IN = 1
_HEADER = struct.Struct("!HHHHHH")
_IS_ANSWER, _OPCODE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x7800, 0x0100, 0x0080
NO_ERROR, SERVER_FAILED, NO_SUCH_NAME = 0, 2, 3
_SECONDS = 60  # how long an answer may be kept; it holds for the whole run
_LONGEST_QUESTION = 4096
_NAME = re.compile(r"[a-z0-9_.-]{1,253}", re.ASCII)


class Question(NamedTuple):
    """What a resolver wants to know."""

    number: int
    flags: int
    name: str
    kind: int
    raw: bytes
    """The question as it came, to be repeated in the answer."""

    @property
    def is_about_a_host(self) -> bool:
        """Whether it has a name that can be shown and looked up; what asks for names of addresses has not."""
        return _NAME.fullmatch(self.name) is not None and not self.name.endswith(".arpa")


def parse(packet: bytes) -> Question | None:
    """The question in a packet; None if it is not one that can be answered, whatever else it may be."""
    if not _HEADER.size < len(packet) <= _LONGEST_QUESTION:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(packet)
    if flags & (_IS_ANSWER | _OPCODE) or questions != 1:
        return None
    labels, at = [], _HEADER.size
    # A length above 63 would be a pointer, which a question has no use for; so the loop always moves on.
    while at < len(packet) and 0 < packet[at] < 64:
        labels.append(packet[at + 1 : at + 1 + packet[at]])
        at += 1 + packet[at]
    if at + 5 > len(packet) or packet[at] != 0 or at - _HEADER.size > 254:
        return None
    kind, group = struct.unpack_from("!HH", packet, at + 1)
    if group != _IN:
        return None
    name = b".".join(labels).decode("ascii", "replace").lower()
    return Question(number, flags, name, kind, packet[_HEADER.size : at + 5])


def answer(question: Question, code: int, address: bytes | None = None) -> bytes:
    """The packet that goes back, with a version 4 address where there is one and that was asked for."""
    has_row = address is not None and question.kind == A
    flags = _IS_ANSWER | _RECURSION_AVAILABLE | (question.flags & _RECURSION_DESIRED) | code
    head = _HEADER.pack(question.number, flags, 1, int(has_row), 0, 0)
    # 0xC00C: the name is the one in the question.
    row = struct.pack("!HHHIH", 0xC00C, A, _IN, _SECONDS, 4) + (address or b"") if has_row else b""
    return head + question.raw + row
