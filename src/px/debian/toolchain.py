"""The compiler set, split into parts, so that the build of a C extension does not wait for the whole set.

Half of the set is rarely used: the C++ compiler and its headers, sanitizers, the static libpython, the link-time
optimiser.  The first part has what C needs.  For each program that it lacks it has a stand-in, a script that fails and
writes its own name to ``/build/wanted``.  If a build called one, px adds the other parts and builds again.  So the
result is always the one that the whole set gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

C, ALL = ("compiler",), ("compiler", "compiler-c++", "compiler-lto")
WANTED = "/build/wanted"
"""The file to which stand-ins write their names."""
STAND_IN = f'#!/bin/sh\necho "$0" >>{WANTED}\necho "$0: not in this part of the compiler set" >&2\nexit 1\n'
MISSING = re.compile(r"cannot find \S*(?:stdc\+\+|python3|asan|tsan|ubsan)\S*")
"""What the linker says if a library of the other parts is missing.  Only programs have stand-ins."""
# Packages that only the second part has.
_MORE = re.compile(
    r"g\+\+.*|libstdc\+\+-\d+-dev|lib(asan|hwasan|lsan|tsan|ubsan)\d+|libgprofng\d+|libpython3\.\d+|binutils-common"
)
# Packages of which the first part has only some files.  The driver, gcc-12, also tells the version of gcc.
_DRIVER = re.compile(r"gcc-(\d+)(-[a-z].*)?")
_PYTHON = re.compile(r"libpython3\.\d+-dev")


@dataclass(frozen=True)
class Rules:
    """Which files of its packages a part has, and what it has in place of the others."""

    stop: str = ""
    """A regular expression.  A package is read only up to the first file that matches, to save decompression."""
    left: str = ""
    """A regular expression for further files that are left out."""
    links: tuple[tuple[str, str], ...] = ()
    """Links that the package has after the stop, or that lead to a stand-in."""
    stand_ins: tuple[str, ...] = ()


def part_of(compiler: Iterable[str], part: str, triplet: str) -> tuple[frozenset[str], Rules | None]:
    """The packages of one part of the set, and the rules for their files (None: all files)."""
    names = frozenset(compiler)
    version = next((found[1] for name in sorted(names) if (found := _DRIVER.fullmatch(name))), "")
    more = frozenset(name for name in names if _MORE.fullmatch(name))
    if part == ALL[0]:
        return names - more, _rules(version, triplet) if version else None
    # The packages that the first part has cut short come again, whole, with the later parts.
    again = _PYTHON if part == ALL[1] else _DRIVER
    rest = frozenset(name for name in names if again.fullmatch(name))
    return (more | rest if part == ALL[1] else rest), None


def _rules(version: str, triplet: str) -> Rules:
    tools = ("gcc", "gcc-ar", "gcc-nm", "gcc-ranlib")
    missing = [f"usr/bin/{name}" for name in ("g++", f"g++-{version}", f"{triplet}-g++", f"{triplet}-g++-{version}")]
    # gcc's internal programs: in usr/lib in debian-12, in usr/libexec since debian-13.
    for directory in ("lib", "libexec"):
        missing += [f"usr/{directory}/gcc/{triplet}/{version}/{name}" for name in ("cc1plus", "lto1")]
    return Rules(
        stop=r"usr/lib(exec)?/gcc/.*/lto1|usr/lib/python3.*\.a",
        left=r"usr/bin/.*lto-dump.*",
        links=(
            *((f"usr/bin/{name}-{version}", f"{triplet}-{name}-{version}") for name in tools),
            # Links, as the fix-up `alternatives` makes them for the real c++.  It would not replace a file later.
            ("etc/alternatives/c++", "/usr/bin/g++"),
            ("usr/bin/c++", "/etc/alternatives/c++"),
        ),
        stand_ins=tuple(missing),
    )
