"""``px sandbox ps``: the sandboxes of Metaflow steps that exist now, here and at the providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from px import console
from px.cli.answer import emit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from px.project.context import Context


class Lister(Protocol):
    """A module that lists and ends sandboxes, and the templates that they are made from."""

    def listing(self, backend: str | None, labels: Mapping[str, str]) -> tuple[list[dict[str, str]], list[str]]: ...

    def end(self, backend: str, sandbox_id: str) -> str | None: ...

    def templates(self, backend: str | None) -> tuple[list[dict[str, str]], list[str]]: ...

    def remove_template(self, backend: str, name: str) -> str | None: ...


COLUMNS = ("backend", "id", "state", "flow", "run", "step", "task", "created")


def configure(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The arguments that `ps` and `reap` have in common."""
    parser.add_argument("--backend", help="only this backend: local, daytona or e2b (default: all that are set up)")
    parser.add_argument("--flow", help="only sandboxes of this flow")
    parser.add_argument("--run", help="only sandboxes of this run")


def main(args: argparse.Namespace, context: Context) -> int:
    rows, problems = found(args)
    if not args.json:
        print_table(COLUMNS, rows)
    emit(args, console.counted(len(rows), "sandbox", "sandboxes"), {"sandboxes": rows, "problems": problems})
    return 1 if problems else 0


def found(args: argparse.Namespace) -> tuple[list[dict[str, str]], list[str]]:
    """One row for each sandbox that the arguments select, and what kept the list from being whole, said already."""
    labels = {key: value for key, value in (("flow", args.flow), ("run", args.run)) if value}
    rows: list[dict[str, str]] = []
    problems: list[str] = []
    for lister in listers():
        more, unasked = lister.listing(args.backend, labels)
        rows += more
        problems += unasked
    for problem in problems:
        console.warn(problem)
    return rows, problems


def listers() -> list[Lister]:
    """Whoever makes sandboxes beside px itself registers here: px knows none of them by name."""
    from importlib.metadata import entry_points

    return [entry.load() for entry in entry_points(group="px.sandboxes")]


def print_table(columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    # What providers say may not steer the terminal, nor look like a row of its own.
    cells = (tuple(console.printable(row.get(column, "")).replace("\n", "?") for column in columns) for row in rows)
    table = [columns, *cells]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
