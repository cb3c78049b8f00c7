"""``px sandbox ps``: the sandboxes of Metaflow steps that exist now, here and at the providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context

SUMMARY = "List the sandboxes of Metaflow steps that are running"
COLUMNS = ("backend", "id", "state", "flow", "run", "step", "task", "created")


def configure(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The arguments that `ps` and `reap` have in common."""
    parser.add_argument("--backend", help="only this backend: local, daytona or e2b (default: all that are set up)")
    parser.add_argument("--flow", help="only sandboxes of this flow")
    parser.add_argument("--run", help="only sandboxes of this run")


def main(args: argparse.Namespace, context: Context) -> int:
    rows = found(args)
    if not context.json:
        _print_table(rows)
    context.emit(f"{len(rows)} sandboxes", {"sandboxes": rows})
    return 0


def found(args: argparse.Namespace) -> list[dict[str, str]]:
    """One row for each sandbox that the arguments select."""
    # The extension is a layer above px's own; this command is the door to it, and opens it only here.
    from metaflow_extensions.sandbox.plugins import sandbox_listing

    labels = {key: value for key, value in (("flow", args.flow), ("run", args.run)) if value}
    rows, problems = sandbox_listing.listing(args.backend, labels)
    for problem in problems:
        console.warn(problem)
    return rows


def _print_table(rows: list[dict[str, str]]) -> None:
    table = [COLUMNS, *(tuple(row.get(column, "") for column in COLUMNS) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
