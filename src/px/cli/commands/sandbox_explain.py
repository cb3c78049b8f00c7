"""``px sandbox explain``: what the sandbox of this project is, and where each part of it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.project.state import Target
from px.sandbox.definition import derive
from px.sandbox.image import ensure_layers
from px.sandbox.report.explain import explain, render
from px.workflow.door import permitted
from px.workflow.pack import production

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "The ids are those that px run --sandbox and px pack image use. What must be known for them is fetched\n"
        "and inspected; nothing of the project is changed. -v lists every reason and package."
    )


def main(args: argparse.Namespace, context: Context) -> int:
    with permitted(context, "sandbox explain") as situation:
        selection = situation.selection(Target.SANDBOX)
        derived = derive(situation, selection)
        layers = ensure_layers(derived)
        shipped = derive(situation, production(context.project, selection, None))
    explanation = replace(explain(derived, layers), pack_sbx_id=shipped.definition.sbx_id)
    if not args.json:
        print(render(explanation, verbose=bool(args.verbose)), end="")
    emit(args, f"sbx_id {explanation.sbx_id}", explanation.as_json())
    return 0
