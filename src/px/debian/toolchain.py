"""The compiler set in parts, so that building an extension in C need not wait for the rest of it.

Half of the set is what few builds use: the C++ compiler and its headers, sanitizers, the static libpython, the
link-time optimiser.  The first part is all that C needs.  Where it lacks a program it has a stand-in that fails
and notes in ``/build`` that it was called: whoever builds adds the other parts then and builds again, so what a
package becomes never depends on how the set is cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

C, ALL = ("compiler",), ("compiler", "compiler-c++", "compiler-lto")
WANTED = "/build/wanted"
"""Where the stand-ins note their names."""
STAND_IN = f'#!/bin/sh\necho "$0" >>{WANTED}\necho "$0: not in this part of the compiler set" >&2\nexit 1\n'
MISSING = re.compile(r"cannot find \S*(?:stdc\+\+|python3|asan|tsan|ubsan)\S*")
"""What the linker says about libraries of the other parts."""
_MORE = re.compile(
    r"g\+\+.*|libstdc\+\+-\d+-dev|lib(asan|hwasan|lsan|tsan|ubsan)\d+|libgprofng\d+|libpython3\.\d+|binutils-common"
)
_DRIVER = re.compile(r"gcc-(\d+)(-[a-z].*)?")
_PYTHON = re.compile(r"libpython3\.\d+-dev")


@dataclass(frozen=True)
class Rules:
    """What a layer has of its packages' files, and what it has instead of the rest."""

    stop: str = ""
    """Packages are read up to the first file that this matches: decompressing is what takes the time."""
    left: str = ""
    """Files that are left out."""
    links: tuple[tuple[str, str], ...] = ()
    """Links that come after the stop, or lead to a stand-in."""
    stand_ins: tuple[str, ...] = ()


def part_of(compiler: Iterable[str], part: str, triplet: str) -> tuple[frozenset[str], Rules | None]:
    """The packages of one part of the set, and the rules for their files."""
    names = frozenset(compiler)
    version = next((found[1] for name in sorted(names) if (found := _DRIVER.fullmatch(name))), "")
    more = frozenset(name for name in names if _MORE.fullmatch(name))
    if part == ALL[0]:
        return names - more, _rules(version, triplet) if version else None
    again = _PYTHON if part == ALL[1] else _DRIVER
    rest = frozenset(name for name in names if again.fullmatch(name))
    return (more | rest if part == ALL[1] else rest), None


def _rules(version: str, triplet: str) -> Rules:
    tools = ("gcc", "gcc-ar", "gcc-nm", "gcc-ranlib")
    missing = [f"usr/bin/{name}" for name in ("g++", f"g++-{version}", f"{triplet}-g++", f"{triplet}-g++-{version}")]
    for directory in ("lib", "libexec"):
        missing += [f"usr/{directory}/gcc/{triplet}/{version}/{name}" for name in ("cc1plus", "lto1")]
    return Rules(
        stop=r"usr/lib(exec)?/gcc/.*/lto1|usr/lib/python3.*\.a",
        left=r"usr/bin/.*lto-dump.*",
        links=(
            *((f"usr/bin/{name}-{version}", f"{triplet}-{name}-{version}") for name in tools),
            # As the alternatives will have it: they never replace a file.
            ("etc/alternatives/c++", "/usr/bin/g++"),
            ("usr/bin/c++", "/etc/alternatives/c++"),
        ),
        stand_ins=tuple(missing),
    )
