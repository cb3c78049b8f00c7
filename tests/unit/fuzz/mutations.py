"""What is done to good files to make bad ones: at random, but by a recipe that hypothesis can make smaller."""

from __future__ import annotations

import copy
import gzip
import lzma
import random
import tarfile
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import zstandard
from hypothesis import strategies as st

# Where parsers break: ends, signs, separators, the largest and the smallest numbers, texts that are not text.
TOKENS = [
    b"\0", b"\n", b"\r\n", b" ", b"\t", b"/", b"..", b"../", b"./", b"\\", b"=", b",", b":", b";", b'"', b"'", b"#",
    b"[", b"]", b"{", b"}", b"(", b")", b"<", b"|", b"-1", b"0", b"1e999", b"9" * 25, b"07777777777", b"null", b"true",
    b"\xff", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80" * 4, b"\xed\xa0\x80", b"\xe2\x80\xa8",
    b"a" * 300, b" " * 500, b"[" * 200, b"a/" * 150, b"path=", b"PK\1\2", b"PK\3\4", b"\x1f\x8b\x08",
]  # fmt: skip
T = TypeVar("T")


class Dice(Protocol):
    """Where the choices come from: hypothesis, or a seed."""

    def pick(self, items: Sequence[T]) -> T: ...
    def number(self, least: int, most: int) -> int: ...
    def some_bytes(self, most: int) -> bytes: ...


class Drawn:
    """Choices that hypothesis makes, and can make smaller."""

    def __init__(self, draw: st.DrawFn):
        self._draw = draw

    def pick(self, items: Sequence[T]) -> T:
        return self._draw(st.sampled_from(items))

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def some_bytes(self, most: int) -> bytes:
        return self._draw(st.binary(max_size=most))


class Rolled:
    """Choices by a random generator: twenty times as fast."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def pick(self, items: Sequence[T]) -> T:
        return self._random.choice(items)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def some_bytes(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randint(0, most))


def piece(dice: Dice) -> bytes:
    return dice.pick(TOKENS) if dice.number(0, 1) else dice.some_bytes(12)


def mutated(dice: Dice, seeds: Sequence[bytes], most: int = 6) -> bytes:
    """One of the seeds, after a few changes; none at all from time to time."""
    content = bytearray(dice.pick(seeds))
    for _ in range(dice.number(0, most)):
        at = dice.number(0, len(content))
        length = dice.pick([1, 2, 4, 12, 100, 5000])
        kind = dice.pick(("set", "insert", "delete", "repeat", "cut", "splice", "flip"))
        if kind == "set":
            new = piece(dice)
            content[at : at + len(new)] = new
        elif kind == "insert":
            content[at:at] = piece(dice)
        elif kind == "delete":
            del content[at : at + length]
        elif kind == "repeat":
            content[at:at] = content[at : at + length] * dice.pick([1, 3, 40])
        elif kind == "cut":
            del content[at:]
        elif kind == "splice":
            other = dice.pick(seeds)
            start = dice.number(0, len(other))
            content[at : at + length] = other[start : start + length]
        elif at < len(content):
            content[at] ^= 1 << dice.number(0, 7)
    return bytes(content)


# What a document has where something else should be.
ODD: list[Any] = [None, True, 0, -1, 1.5, float("inf"), 10**30, "", "x", "\0", "../../x", "é\u2028", "a=b", [], {}]
ODD += [[None], [[]], {"a": None}, {"": ""}, ["x", 1], [{}], "9" * 30, "sha256:" + "0" * 64, "http://[", "x" * 5000]


def damaged(dice: Dice, seed: Any, odd: Sequence[Any] = ODD) -> Any:
    """A document in which a few values were replaced by odd ones, removed, or put in twice."""
    document = copy.deepcopy(seed)
    for _ in range(dice.number(0, 3)):
        here, path = document, list[tuple[Any, Any]]()
        while isinstance(here, dict | list) and here and (not path or dice.number(0, 4)):
            key = dice.pick(sorted(here) if isinstance(here, dict) else range(len(here)))
            path.append((here, key))
            here = here[key]
        if not path:
            return copy.deepcopy(dice.pick(odd))
        parent, key = path[-1]
        kind = dice.pick(("replace", "replace", "remove", "add"))
        if kind == "replace":
            parent[key] = copy.deepcopy(dice.pick(odd))
        elif kind == "remove":
            del parent[key]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(dice.pick(odd)))
        else:
            parent[str(dice.pick(["x", "", key]))] = copy.deepcopy(dice.pick(odd))
    return document


NAMES = [
    "a",
    "./a",
    "usr/bin/x",
    "./usr/",
    "usr/lib/l",
    "usr/lib/l/x",
    "../x",
    "/etc/x",
    "a/../b",
    "",
    ".",
    "a//b",
    "control",
]
NAMES += [
    "n" * 120,
    "d/" * 60 + "x",
    "\udcff",
    "python/install/bin/python3.11",
    "python/lib/a",
    "python/bin/python3.11",
]
_FLAGS = [
    tarfile.REGTYPE,
    b"0",
    b"1",
    b"2",
    b"5",
    b"3",
    b"6",
    b"7",
    b"L",
    b"K",
    b"x",
    b"g",
    b"S",
    b"X",
    b"\xff",
    b"0",
    b"0",
]
_SIZES = [
    b"00000000000\0",
    b"00000000001\0",
    b"00000001000\0",
    b"77777777777\0",
    b"-0000001000\0",
    b"\xff" * 12,
    b"\x80" + b"\0" * 10 + b"\5",
]
_SIZES += [b" " * 12, b"1_0        \0", b"8          \0"]
_PAX = [
    b"10 path=a\n",
    b"0 path=a\n",
    b"9 path=a\n",
    b"13 linkpath=\n",
    b"18 GNU.sparse.map=\n",
    b"12 size=999\n",
    b"-5 a=b\n",
    b"99",
    b"x y",
]
_PAX += [
    b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n",
    b"20 GNU.sparse.size=1\n",
    b"30 mtime=99999999999999999999\n",
]


def header(name: bytes, flag: bytes, size: bytes, link: bytes) -> bytearray:
    found = bytearray(512)
    found[: min(100, len(name))] = name[:100]
    found[100:108] = b"0000644\0"
    found[124:136] = size[:12].ljust(12, b"\0")
    found[136:148] = b"00000000000\0"
    found[156:157] = flag
    found[157 : 157 + len(link[:100])] = link[:100]
    found[257:265] = b"ustar\x0000"
    return found


def summed(found: bytearray) -> bytes:
    found[148:156] = b" " * 8
    found[148:156] = f"{sum(found):06o}\0 ".encode()
    return bytes(found)


def tars(dice: Dice) -> bytes:
    """A tar archive whose headers have correct sums, and anything else in them."""
    out = b""
    for _ in range(dice.number(0, 6)):
        flag = dice.pick(_FLAGS)
        content = dice.pick(_PAX) if flag in (b"x", b"g") else dice.some_bytes(30)
        if flag in (b"L", b"K"):
            content = dice.pick(NAMES).encode("utf-8", "surrogateescape") + b"\0"
        if dice.number(0, 1) and flag in (b"1", b"2", b"5"):
            content = b""
        size = f"{len(content):011o}\0".encode() if dice.number(0, 4) else dice.pick(_SIZES)
        name, link = (dice.pick(NAMES).encode("utf-8", "surrogateescape") for _ in range(2))
        head = header(name, flag, size, link)
        if not dice.number(0, 5):
            at = dice.number(0, 511)
            new = piece(dice)[: 512 - at]
            head[at : at + len(new)] = new
        out += summed(head) + content + bytes(-len(content) % 512)
    return out + bytes(dice.pick([0, 512, 1024]))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda b: b,
    ".gz": lambda b: gzip.compress(b, 1, mtime=0),
    ".xz": lambda b: lzma.compress(b, preset=0),
    ".zst": zstandard.compress,
}
