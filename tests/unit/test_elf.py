"""The ELF reader against pyelftools, on files made here and on those of the interpreter that runs the test."""

from __future__ import annotations

import random
import sys
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.segments import InterpSegment

from px.elf import Elf, read_elf
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
