"""Which capability brings which shared library, and which base is new enough (``data/sonames.toml``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from px import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Sonames:
    """The table of one base."""

    owners: Mapping[str, tuple[str, ...]]
    """SONAME -> the capabilities that bring it, the preferred one first."""
    newest: Mapping[str, str]
    """Symbol version prefix (GLIBC, GLIBCXX …) -> the newest that the base defines."""


@cache
def tables() -> Mapping[str, Sonames]:
    with open(f"{DATA}/sonames.toml", "rb") as f:
        raw = tomllib.load(f)
    return {base: Sonames(_invert(rows), raw["newest"].get(base, {})) for base, rows in raw["sonames"].items()}


def _invert(rows: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for capability, names in rows.items():
        for name in names:
            owners[name] = (*owners.get(name, ()), capability)
    return owners


def owners(soname: str, base: str) -> tuple[str, ...]:
    """The capabilities that bring exactly this library to the base."""
    table = tables().get(base)
    return table.owners.get(soname, ()) if table else ()


def bases_with(soname: str) -> tuple[str, ...]:
    """Every base of Debian's that some capability brings this library to; what is for glibc is lost on Alpine."""
    return tuple(b for b, table in tables().items() if soname in table.owners and not b.startswith("alpine-"))


def stem(soname: str) -> str:
    """``libssl`` of ``libssl.so.1.1``."""
    return soname.partition(".so")[0]


def by_stem(library: str, base: str) -> tuple[tuple[str, str], ...]:
    """(capability, SONAME) of each library with this name in whatever version the base has it."""
    table, wanted = tables().get(base), stem(library)
    rows = table.owners.items() if table else ()
    return tuple((found[0], soname) for soname, found in rows if stem(soname) == wanted)


def bases_for_version(version: str) -> tuple[str, ...]:
    """The bases whose runtime defines a symbol version such as ``GLIBC_2.38``."""
    prefix, _, number = version.partition("_")
    return tuple(
        base
        for base, table in tables().items()
        if prefix in table.newest and _key(number) <= _key(table.newest[prefix])
    )


def knows_version(version: str) -> bool:
    """Whether the tables say which bases define versions of this kind."""
    return any(version.partition("_")[0] in table.newest for table in tables().values())


def _key(number: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 1 << 30 for part in number.split("."))
