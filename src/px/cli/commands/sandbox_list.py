"""``px sandbox list``: the bases and capabilities that this px has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.errors import PxError
from px.platforms import DEFAULT_BASE
from px.sandbox.layers.base import known_bases
from px.sandbox.needs.capabilities import table

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context
    from px.sandbox.needs.capabilities import Capability


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", metavar="NAME", help="only what this base has, with its packages")


def main(args: argparse.Namespace, context: Context) -> int:
    bases = list(known_bases())
    if args.base is not None:
        _check_base(args.base, bases)
    rows = [c for c in table().values() if args.base is None or args.base in c.packages]
    if not args.json:
        _print(rows, bases, args.base, DEFAULT_BASE)
    counts = f"{console.counted(len(bases), 'base')}, {console.counted(len(rows), 'capability', 'capabilities')}"
    emit(args, counts, _details(rows, bases, DEFAULT_BASE))
    return 0


def _check_base(name: str, bases: list[str]) -> None:
    if name not in bases:
        problem = f"px has no base of that name. It has: {', '.join(bases)}"
        raise PxError("PX900", base=name, problem=problem)


def _print(rows: list[Capability], bases: list[str], base: str | None, default: str) -> None:
    width = max((len(row.name) for row in rows), default=0) + 2
    print("Bases:")
    for name in bases:
        print(f"  {name}{'  (default)' if name == default else ''}")
    print("\nCapabilities:")
    for row in rows:
        print(f"  {row.name:<{width}}{row.summary}")
        if base is not None:
            print(f"  {'':<{width}}{', '.join(row.packages[base].runtime)}")


def _details(rows: list[Capability], bases: list[str], default: str) -> dict[str, object]:
    capabilities = [
        {
            "name": row.name,
            "summary": row.summary,
            "packages": {
                base: {"runtime": list(lists.runtime), "build": list(lists.build)}
                for base, lists in row.packages.items()
            },
        }
        for row in rows
    ]
    return {"bases": bases, "default_base": default, "capabilities": capabilities}
