"""``px base lock``: pin a base anew (for px's maintainers)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.errors import PxError
from px.sandbox.layers.base import lock_directory
from px.workflow.bases import architectures_of, relock_base, seeds_of

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="+", metavar="NAME", help="the base, such as debian-12")
    parser.add_argument(
        "--architecture", action="append", metavar="NAME", help="only this one (amd64, arm64); repeatable"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the lock there; PX_BASES=DIR makes px read it")
    parser.add_argument("--dry-run", action="store_true", help="print what would change and write nothing")


def main(args: argparse.Namespace, context: Context) -> int:
    changes: dict[str, object] = {}
    for name in args.name:
        seeds = seeds_of(name)
        directory: Path = args.out or lock_directory(name)
        if context.offline:
            fix = ["Run it without --offline."]
            raise PxError("PX900", base=name, problem="it cannot be locked offline", fix=fix, whole_fix=True)
        for architecture in architectures_of(seeds, args.architecture):
            lines = relock_base(seeds, architecture, directory, dry_run=args.dry_run)
            changes[f"{name}-{architecture}"] = lines
            if not args.json:
                print(f"{name} {architecture}: {console.counted(len(lines), 'change')} in {directory}")
                print(*(f"  {line}" for line in lines), sep="\n")
    emit(args, console.counted(len(changes), "lock"), {"directory": str(directory), "changes": changes})
    return 0
