"""``px doctor``: look at this machine and say what works, what does not, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.workflow.doctor import FAIL, OK, examine, first_step

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exits with 1 if something that px cannot do without is missing."


def main(args: argparse.Namespace, context: Context) -> int:
    checks = examine(context.home)
    failed = [c for c in checks if c.verdict == FAIL]
    if not args.json:
        colours = {OK: "green", FAIL: "red"}
        for check in checks:
            mark = console.paint(f"{check.verdict:<5}", colours.get(check.verdict, "yellow"), to="stdout")
            print(f"{mark} {check.name:<18} {check.finding}")
            for line in check.fix:
                print(f"{'':<25}fix: {line}")
    first = first_step(checks, context.directory)
    if not args.json:
        print(f"\n{first}")
    message = f"{console.counted(len(checks), 'check')}, {len(failed)} failed"
    details = {"checks": [vars(c) | {"fix": list(c.fix)} for c in checks], "failed": len(failed), "first": first}
    emit(args, message, details)
    return 1 if failed else 0
