"""The filter, run by a small interpreter of BPF: what it answers for calls and arguments on both machines."""

from __future__ import annotations

import errno
import struct

import pytest

from px.engines import seccomp

TABLE = seccomp.table()
ALLOW, KILL = seccomp.ALLOW, seccomp.KILL_PROCESS


def refused(name: str) -> int:
    return seccomp.refuse(name)


def answer(machine: str, number: int, *args: int, audit: int | None = None) -> int:
    """What the kernel would get from the filter for one system call."""
    program = seccomp.filter_path(machine).read_bytes()
    architecture = TABLE["machines"][machine]["audit"] if audit is None else audit
    padded = [*args, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    instructions = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        code, true, false, k = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == 0x06:
            return int(k)
        else:
            taken = {0x15: accumulator == k, 0x25: accumulator > k, 0x45: bool(accumulator & k)}[code]
            at += true if taken else false


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_shipped_filter_is_the_tables(machine: str) -> None:
    assert seccomp.filter_path(machine).read_bytes() == seccomp.assemble(TABLE, machine), "python -m px.engines.seccomp"


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_every_row_is_refused_with_its_error(machine: str) -> None:
    column = seccomp.MACHINES.index(machine)
    for row in TABLE["deny"]:
        for name, numbers in row["calls"].items():
            if numbers[column] >= 0:
                assert answer(machine, numbers[column]) == refused(row["errno"]), name


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_everything_else_up_to_the_newest_is_allowed(machine: str) -> None:
    column = seccomp.MACHINES.index(machine)
    denied = {numbers[column] for row in TABLE["deny"] for numbers in row["calls"].values()}
    # With all arguments 0 the rules that look at arguments allow as well.
    for number in set(range(TABLE["newest"] + 1)) - denied:
        assert answer(machine, number) == ALLOW, number
    for number in (TABLE["newest"] + 1, 500, 0x3FFFFFFF):
        assert answer(machine, number) == refused("ENOSYS")


def test_other_architectures_and_numbers() -> None:
    assert answer("x86_64", 39, audit=0x40000003) == KILL
    assert answer("x86_64", 0x40000000 | 39) == refused("ENOSYS")
    assert answer("aarch64", 172, audit=0x40000028) == KILL


@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        ("clone", (0x11,), None),
        ("clone", (0x3D0F00,), None),  # what threads are made with
        ("clone", (0x10000000,), "EPERM"),
        ("clone", (0x00020011,), "EPERM"),
        ("ioctl", (0, 0x5401), None),
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, 0x5412 | (1 << 32)), "EPERM"),
        ("ioctl", (0, 0x541C), "EPERM"),
        ("ioctl", (0x5412, 0), None),
        ("fchmod", (3, 0o755), None),
        ("fchmod", (3, 0o4755), "EPERM"),
        ("fchmod", (3, 0o2755), "EPERM"),
        ("fchmodat", (3, 0, 0o4644), "EPERM"),
        ("mkdirat", (3, 0, 0o2755), "EPERM"),
        ("mknodat", (3, 0, 0o104755), "EPERM"),
        ("openat", (3, 0, 0o101, 0o4755), "EPERM"),
        ("openat", (3, 0, 0o101, 0o755), None),
        ("openat", (3, 0, 0o20200000, 0o4755), "EPERM"),  # O_TMPFILE
        ("openat", (3, 0, 0, 0o4755), None),  # opens, makes nothing
        ("socket", (2,), None),
        ("socket", (40,), "EPERM"),
        ("socket", (38,), "EPERM"),
        ("personality", (0,), None),
        ("personality", (0xFFFFFFFF,), None),
        ("personality", (0x0400000,), "EPERM"),
    ],
)
@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_arguments(machine: str, call: str, args: tuple[int, ...], expected: str | None) -> None:
    column = seccomp.MACHINES.index(machine)
    [number] = {row["calls"][call][column] for row in TABLE["match"] if call in row["calls"]}
    assert answer(machine, number, *args) == (ALLOW if expected is None else refused(expected))


def test_every_row_has_a_reason_and_a_known_error() -> None:
    for row in [*TABLE["deny"], *TABLE["match"]]:
        assert row["why"]
        assert hasattr(errno, row["errno"])
        assert all(len(numbers) == len(seccomp.MACHINES) for numbers in row["calls"].values())
