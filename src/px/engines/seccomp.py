"""A small assembler for seccomp filters: ``data/seccomp.toml`` becomes the bytes that bubblewrap loads.

The filter is classic BPF over ``struct seccomp_data`` (call number, architecture, arguments).  It is compiled when
the table changes, not when px runs: ``python -m px.engines.seccomp`` writes ``data/seccomp/<machine>.bpf``.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MACHINES = ("x86_64", "aarch64")

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000

# Offsets in struct seccomp_data; both machines are little-endian, so the low half of an argument comes first.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_LOAD, _JEQ, _JGT, _JSET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06


@dataclass(frozen=True)
class Instruction:
    """One BPF instruction; jumps count the instructions to skip."""

    code: int
    k: int
    true: int = 0
    false: int = 0

    def encode(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.true, self.false, self.k)


def load(offset: int) -> Instruction:
    return Instruction(_LOAD, offset)


def give(action: int) -> Instruction:
    return Instruction(_RETURN, action)


def refuse(name: str) -> int:
    return _ERRNO | int(getattr(errno, name))


def filter_path(machine: str) -> Path:
    return Path(DATA, "seccomp", f"{machine}.bpf")


def table() -> Mapping[str, Any]:
    import tomllib

    with open(f"{DATA}/seccomp.toml", "rb") as f:
        return tomllib.load(f)


def assemble(rules: Mapping[str, Any], machine: str) -> bytes:
    """The whole filter: foreign architectures, calls that are too new, denied calls, denied arguments, else allow."""
    column = MACHINES.index(machine)
    program = [
        *_prologue(rules["machines"][machine], rules["newest"]),
        *(i for row in rules["deny"] for i in _deny(row, column)),
        *(i for row in rules["match"] for i in _match(row, column)),
        give(ALLOW),
    ]
    return b"".join(instruction.encode() for instruction in program)


def _prologue(machine: Mapping[str, int], newest: int) -> Iterator[Instruction]:
    # A 32-bit program enters the kernel under another architecture, whose numbers mean other calls.
    yield load(_ARCHITECTURE)
    yield Instruction(_JEQ, machine["audit"], true=1)
    yield give(KILL_PROCESS)
    yield load(_NUMBER)
    if "x32" in machine:
        yield Instruction(_JSET, machine["x32"], false=1)
        yield give(refuse("ENOSYS"))
    yield Instruction(_JGT, newest, false=1)
    yield give(refuse("ENOSYS"))


def _numbers(row: Mapping[str, Any], column: int) -> list[int]:
    return [numbers[column] for numbers in row["calls"].values() if numbers[column] >= 0]


def _deny(row: Mapping[str, Any], column: int) -> Iterator[Instruction]:
    for number in _numbers(row, column):
        yield Instruction(_JEQ, number, false=1)
        yield give(refuse(row["errno"]))


def _match(row: Mapping[str, Any], column: int) -> Iterator[Instruction]:
    """Look at one argument of a call; the call number is loaded again for the rules that follow."""
    check = [load(_ARGUMENTS + 8 * row["argument"]), *_argument(row)]
    if condition := row.get("only_if"):
        # Without any of these bits, the rest of the rule is skipped.
        bits = Instruction(_JSET, condition["any_bit"], false=len(check))
        check = [load(_ARGUMENTS + 8 * condition["argument"]), bits, *check]
    check.append(load(_NUMBER))
    for number in _numbers(row, column):
        yield Instruction(_JEQ, number, false=len(check))
        yield from check


def _argument(row: Mapping[str, Any]) -> Iterator[Instruction]:
    denied = give(refuse(row["errno"]))
    if "any_bit" in row:
        yield Instruction(_JSET, row["any_bit"], false=1)
        yield denied
    for value in row.get("values", ()):
        yield Instruction(_JEQ, value, false=1)
        yield denied
    if "unless" in row:
        allowed = row["unless"]
        for position, value in enumerate(allowed):
            yield Instruction(_JEQ, value, true=len(allowed) - position)
        yield denied


def write() -> None:
    from px.store.files import write_atomically

    for machine in MACHINES:
        write_atomically(filter_path(machine), assemble(table(), machine))


if __name__ == "__main__":
    write()
