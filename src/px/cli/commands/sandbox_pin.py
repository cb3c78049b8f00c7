"""``px sandbox pin``: give the project its own pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.workflow.door import permitted
from px.workflow.supply.pins import pin, sandbox_manifest

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--architecture", action="append", metavar="NAME", help="for this one (amd64, arm64); repeatable; default: all"
    )
    parser.epilog = (
        "Writes the versions of the base, of the capabilities in use and of the compiler set to the file that\n"
        "[tool.px.sandbox] pins names, and names px-pins.json there if it names none. Commit both. A new px then\n"
        "changes nothing. What is pinned already stays: px sandbox update takes newer versions."
    )


def main(args: argparse.Namespace, context: Context) -> int:
    with permitted(context, "sandbox pin") as situation:
        locks = pin(situation, args.architecture)
    path = sandbox_manifest(context.look_again()).pins
    counted = {name: len(lock.packages) for name, lock in locks.items()}
    capabilities = sorted({c for lock in locks.values() for c in lock.capabilities})
    message = f"{path}: " + ", ".join(
        f"{console.counted(count, 'package')} for {name}" for name, count in counted.items()
    )
    if not args.json:
        print(f"{message}\ncapabilities: {', '.join(capabilities) or '(none)'}")
    emit(args, message, {"pins": str(path), "packages": counted, "capabilities": capabilities})
    return 0
