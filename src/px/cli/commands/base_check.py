"""``px base check``: ask every archive for every pin of a base (for px's maintainers)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.errors import PxError
from px.workflow.bases import architectures_of, check_base, seeds_of

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="+", metavar="NAME", help="the base, such as debian-12")
    parser.add_argument("--architecture", action="append", metavar="NAME", help="only this one; repeatable")
    parser.epilog = "Exit code: 0 if some archive has every pin, 1 if a pin is gone from all of them."


def main(args: argparse.Namespace, context: Context) -> int:
    if context.offline:
        problem, fix = "its pins cannot be asked for offline", ["Run it without --offline."]
        raise PxError("PX900", base=args.name[0], problem=problem, fix=fix, whole_fix=True)
    details: dict[str, object] = {}
    lost: list[str] = []
    for name in args.name:
        for architecture in architectures_of(seeds_of(name), args.architecture):
            found, gone = check_base(name, architecture)
            lost += gone
            details[f"{name}-{architecture}"] = {"archives": [asdict(one) for one in found], "gone": gone}
            if not args.json:
                print(f"{name} {architecture}:")
                for one in found:
                    print(f"  {one.archive}: {one.problem or f'{len(one.gone)} gone {sorted(one.gone)}'}")
                    if one.unanswered:
                        print(f"    no clear answer for {len(one.unanswered)}: {', '.join(one.unanswered[:5])} …")
    emit(args, f"{len(lost)} gone from everywhere", details)
    return 1 if lost else 0
