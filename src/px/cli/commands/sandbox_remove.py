"""``px sandbox remove``: take a capability's entry out of ``pyproject.toml``, or switch the capability off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.errors import PxError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from px.cli.context import Context

SUMMARY = "Remove system capabilities from the sandbox"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capability", nargs="+", metavar="NAME", help="a capability such as postgres")
    parser.add_argument(
        "--disable", action="store_true", help="write NAME = false, so that px does not infer it either"
    )


def main(args: argparse.Namespace, context: Context) -> int:
    from px.project.discovery import discover

    if context.frozen_by is not None:
        raise PxError("PX011", command="sandbox remove", frozen_by=context.frozen_by)
    path = discover(context.directory).manifest.path
    message, changed = _disable(path, args.capability) if args.disable else _remove(path, args.capability)
    if not context.json:
        print(message)
    context.emit(message, {"removed": changed, "disabled": args.disable, "manifest": str(path)})
    return 0


def _disable(path: Path, names: list[str]) -> tuple[str, list[str]]:
    from px.sandbox.edit import set_capabilities

    changed = set_capabilities(path, names, enabled=False)
    if not changed:
        return "Already switched off: nothing was changed.", []
    return f"Switched off in {path.name}: {', '.join(changed)}", list(changed)


def _remove(path: Path, names: list[str]) -> tuple[str, list[str]]:
    from px import console
    from px.sandbox.edit import unset_capabilities

    changed = unset_capabilities(path, names)
    again = " ".join(names)
    if not changed:
        return f"Not declared in {path.name}. If px infers it: px sandbox remove --disable {again}", []
    console.info(f"hint: px may still infer what the env needs; to rule that out: px sandbox remove --disable {again}")
    return f"Removed from {path.name}: {', '.join(changed)}", list(changed)
