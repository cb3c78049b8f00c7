"""``px remove``: a requirement out of the manifest, the lock and the env, or none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from px import console
from px.cli.commands.add import place
from px.cli.commands.sync import report
from px.cli.flags import add_target, target_of
from px.workflow.door import change

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from px.project.context import Context
    from px.project.manifest import Manifest


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="the name of a direct dependency")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--dev", action="store_true", help="remove from the dependency group `dev`")
    where.add_argument("--group", metavar="NAME", help="remove from a dependency group")
    where.add_argument("--optional", metavar="EXTRA", help="remove from an extra of the project")
    parser.add_argument("--package", metavar="MEMBER", help="remove from this member of the workspace")
    add_target(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    manifest = next((m for m in context.project.manifests if m.name == args.package), context.project.here)
    chosen = bool(args.dev or args.group or args.optional)
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in args.packages:
        groups.setdefault(() if chosen else only_place(manifest, name), []).append(name)

    def action(context: Context) -> None:
        for where, names in groups.items():
            what = f"remove {', '.join(names)}"
            remedy = "See who needs a package that is not a direct dependency: px why NAME"
            if where:
                console.info(f"{', '.join(names)}: removing from {' '.join(where).removeprefix('--')}")
            context.uv_here.must(what, "remove", "--no-sync", *place(args), *where, "--", *names, remedy=remedy)

    report(args, change(context, "remove", target_of(args), action))
    return 0


def only_place(manifest: Manifest, name: str) -> tuple[str, ...]:
    """uv's flag for the one group or extra that has a package which is no ordinary dependency; none if it is one."""
    project = manifest.project
    if _has(project.get("dependencies", ()), name):
        return ()
    tables = {"--group": manifest.document.get("dependency-groups", {}), "--optional": _table(project)}
    found = [(flag, key) for flag, table in tables.items() for key, rows in table.items() if _has(rows, name)]
    return found[0] if len(found) == 1 else ()


def _table(project: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = project.get("optional-dependencies", {})
    return found


def _has(requirements: Sequence[object], name: str) -> bool:
    for text in requirements:
        try:
            if isinstance(text, str) and canonicalize_name(Requirement(text).name) == canonicalize_name(name):
                return True
        except InvalidRequirement:
            continue
    return False
