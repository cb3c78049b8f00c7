"""``px sandbox remove``: take a capability's entry out of ``pyproject.toml``, or switch the capability off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.commands.sandbox_add import shown
from px.errors import PxError
from px.sandbox.edit import set_capabilities, unset_capabilities

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capability", nargs="+", metavar="NAME", help="a capability such as postgres")
    parser.add_argument(
        "--disable", action="store_true", help="write NAME = false, so that px does not infer it either"
    )


def main(args: argparse.Namespace, context: Context) -> int:
    if context.frozen_by is not None:
        raise PxError("PX011", command="sandbox remove", frozen_by=context.frozen_by)
    path = context.project.manifest.path
    act = _disable if args.disable else _remove
    message, changed = act(path, shown(path, context), args.capability)
    if not args.json:
        print(message)
    emit(args, message, {"removed": changed, "disabled": args.disable, "manifest": str(path)})
    return 0


def _disable(path: Path, shown: str, names: list[str]) -> tuple[str, list[str]]:
    changed = set_capabilities(path, names, enabled=False)
    if not changed:
        return "Already switched off: nothing was changed.", []
    return f"Switched off in {shown}: {', '.join(changed)}", list(changed)


def _remove(path: Path, shown: str, names: list[str]) -> tuple[str, list[str]]:
    changed = unset_capabilities(path, names)
    again = " ".join(names)
    if not changed:
        return f"Not declared in {shown}. If px infers it: px sandbox remove --disable {again}", []
    console.info(f"hint: px may still infer what the env needs; to rule that out: px sandbox remove --disable {again}")
    return f"Removed from {shown}: {', '.join(changed)}", list(changed)
