"""``px sandbox explain``: what the sandbox of this project is, and where each part of it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from px.cli.answer import emit
from px.cli.page import add_page, deliver, wants_page
from px.project.state import Target
from px.sandbox.definition import derive
from px.sandbox.image import ensure_layers
from px.sandbox.report.contents import contents
from px.sandbox.report.explain import explain, render
from px.sandbox.report.page.explain import explain_page
from px.sandbox.report.trees import trees_in_store
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
    add_page(parser)


def main(args: argparse.Namespace, context: Context) -> int:
    # Everything that is in the store is read in here: garbage is not collected meanwhile.
    with permitted(context, "sandbox explain") as situation:
        selection = situation.selection(Target.SANDBOX)
        derived = derive(situation, selection)
        layers = ensure_layers(derived)
        shipped = derive(situation, production(context.project, selection, None))
        explanation = replace(explain(derived, layers), pack_sbx_id=shipped.definition.sbx_id)
        found = contents(trees_in_store(context.store, layers)) if wants_page(args) else None
    file = ""
    if found is not None:
        file = deliver(args, lambda: explain_page(context.project.name, explanation, found))
    if not args.json:
        print(render(explanation, verbose=bool(args.verbose)), end="")
    details = explanation.as_json() | ({"html": file} if file else {})
    emit(args, f"sbx_id {explanation.sbx_id}", details)
    return 0
