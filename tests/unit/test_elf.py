"""The ELF reader against pyelftools, on files made here and on those of the interpreter that runs the test."""

from __future__ import annotations

import random
import struct
import sys
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.segments import InterpSegment

from px.elf import Elf, parse_elf, read_elf
from tests.support.bounded import memory, no_hang
from tests.support.elf import make_elf


def by_pyelftools(path: Path) -> Elf | None:
    """The same facts, by the reference reader (which needs section headers for versions)."""
    with path.open("rb") as f:
        file = ELFFile(f)
        if file["e_type"] not in ("ET_DYN", "ET_EXEC"):
            return None
        tags: dict[str, list[str]] = {"needed": [], "soname": [], "rpath": [], "runpath": []}
        interpreter = None
        for segment in file.iter_segments():
            if isinstance(segment, InterpSegment):
                interpreter = segment.get_interp_name()
            if isinstance(segment, DynamicSegment):
                for tag in segment.iter_tags():
                    name = str(tag.entry.d_tag).removeprefix("DT_").lower()
                    if name in tags:
                        tags[name].append(getattr(tag, name))
        needs, defines = [], []
        for section in file.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                needs += [
                    (str(v.name), str(a.name))
                    for v, aux in section.iter_versions()
                    for a in aux
                    if not a["vna_flags"] & 2
                ]
            if isinstance(section, GNUVerDefSection):
                defines += [next(aux).name for v, aux in section.iter_versions() if not v["vd_flags"] & 1]
        machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[file["e_machine"]]
        return Elf(
            machine,
            file.elfclass,
            interpreter,
            tags["soname"][0] if tags["soname"] else None,
            tuple(tags["needed"]),
            tuple(p for text in tags["rpath"] for p in text.split(":") if p),
            tuple(p for text in tags["runpath"] for p in text.split(":") if p),
            tuple(needs),
            tuple(defines),
        )


def real_files() -> list[Path]:
    dynload = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    return [Path(sys.executable).resolve(), *sorted(dynload.glob("*.so"))]


@pytest.mark.parametrize("path", real_files(), ids=lambda p: p.name)
def test_real_files_read_as_pyelftools_reads_them(path: Path) -> None:
    assert read_elf(path) == by_pyelftools(path)


def test_everything_the_loader_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(
        make_elf(
            "libpq.so.5",
            "libc.so.6",
            soname="x.so.1",
            runpath="$ORIGIN/../x.libs::/opt/lib",
            interpreter="/lib64/ld-linux-x86-64.so.2",
            wants=(("libc.so.6", "GLIBC_2.34"), ("libpq.so.5", "PQ_1")),
            weak=(("libc.so.6", "GLIBC_9.9"),),
            versions=("X_1", "X_2"),
        )
    )
    found = read_elf(path)
    assert found == Elf(
        machine="x86_64",
        bits=64,
        interpreter="/lib64/ld-linux-x86-64.so.2",
        soname="x.so.1",
        needed=("libpq.so.5", "libc.so.6"),
        rpath=(),
        runpath=("$ORIGIN/../x.libs", "/opt/lib"),
        version_needs=(("libc.so.6", "GLIBC_2.34"), ("libpq.so.5", "PQ_1")),
        versions=("X_1", "X_2"),
    )


def test_what_is_not_elf_is_none(tmp_path: Path) -> None:
    for content in (b"", b"#!/bin/sh\n" * 20, b"\x7fELF", b"\x7fELF" + b"\xff" * 200):
        path = tmp_path / "x"
        path.write_bytes(content)
        assert read_elf(path) is None


def test_damage_is_none_and_never_an_exception(tmp_path: Path) -> None:
    whole = make_elf("libpq.so.5", soname="x", wants=(("libc.so.6", "GLIBC_2.34"),), versions=("X_1",))
    path = tmp_path / "x.so"
    chance = random.Random(7)
    for _ in range(400):
        content = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 6)):
            if content:
                content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)
        found = read_elf(path)
        assert found is None or isinstance(found, Elf)


def _segments(kind: int, count: int, tail: bytes) -> bytes:
    """A file with ``count`` program headers that all describe ``tail``; an entry of 0 bytes, so one row is enough."""
    start = 64 + 56
    head = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 0, count, 64, 0, 0)
    )
    return head + struct.pack("<IIQQQQQQ", kind, 4, start, 0, 0, len(tail), len(tail), 8) + tail


def test_many_tables_in_the_same_place() -> None:
    """65,535 headers that name one dynamic table of 65,536 rows."""
    with no_hang():
        assert parse_elf(_segments(2, 0xFFFF, struct.pack("<QQ", 1, 0) * (1 << 16))) is None


def test_an_interpreter_as_long_as_the_file() -> None:
    data = _segments(3, 1, b"a" * (100 << 20))
    with memory(50 << 20):
        found = parse_elf(data)
    assert found is None or len(found.interpreter or "") < 1 << 16


def test_version_tables_that_lead_to_themselves() -> None:
    """65,536 rows of 65,535 weak entries each.  Rows and entries are the same bytes: each leads to the next."""
    strings = b"\0a\0"
    table = struct.pack("<HHIII", 1, 0xFFFF, 2, 0, 16) * (1 << 17)
    dynamic_at = 64 + 56 * 2
    table_at = dynamic_at + 16 * 5
    tags = [(5, table_at + len(table)), (10, len(strings)), (0x6FFFFFFE, table_at), (0x6FFFFFFF, 1 << 16), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    total = table_at + len(table) + len(strings)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, total, total, 8)
    head += struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    with no_hang():
        parse_elf(head + dynamic + table + strings)


def test_many_long_names() -> None:
    """65,000 tags that name the same 16 KiB: a gigabyte."""
    name = b"\0" + b"a" * 16_000 + b"\0"
    at = 64 + 56 * 2
    count = 65_000
    strings_at = at + 16 * (count + 3)
    tags = [(1, 1)] * count + [(5, strings_at), (10, len(name)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    total = strings_at + len(name)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, total, total, 8)
    head += struct.pack("<IIQQQQQQ", 2, 4, at, at, at, len(dynamic), len(dynamic), 8)
    with memory(300 << 20):
        assert parse_elf(head + dynamic + name) is None
