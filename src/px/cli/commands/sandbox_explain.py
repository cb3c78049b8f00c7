"""``px sandbox explain``: what the sandbox of this project is, and where each part of it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from px.project import rules
from px.project.discovery import discover
from px.project.selection import Selection
from px.project.situation import inspect
from px.project.state import Target

if TYPE_CHECKING:
    import argparse

    from px.cli.context import Context
    from px.sandbox.bases import Layer
    from px.sandbox.explain import Explanation
    from px.sandbox.sync import Derived

SUMMARY = "Show the sandbox: base, capabilities and why, packages, ids"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "The ids are those that px run --sandbox and px pack image use. What must be known for them is fetched\n"
        "and inspected; nothing of the project is changed. -v lists every reason and package."
    )


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import exclusive
    from px.sandbox.explain import render
    from px.sandbox.sync import derive, layers_of

    project = discover(context.directory)
    situation = inspect(context.home, project, offline=context.offline)
    rules.permit("sandbox explain", situation.flags(Target.SANDBOX), frozen_by=context.frozen_by, target=Target.SANDBOX)
    with exclusive(context, project.root):
        selection = situation.selection(Target.SANDBOX)
        derived = derive(context.store, situation, selection, offline=context.offline)
        layers = layers_of(context.store, derived, offline=context.offline)
        shipped = derive(context.store, situation, Selection(default_groups=False), offline=context.offline)
    explanation = replace(explain(context, derived, layers), pack_sbx_id=shipped.definition.sbx_id)
    if not context.json:
        print(render(explanation, verbose=bool(args.verbose)), end="")
    context.emit(f"sbx_id {explanation.sbx_id}", explanation.as_json())
    return 0


def explain(context: Context, derived: Derived, layers: tuple[Layer, ...]) -> Explanation:
    from px.sandbox.explain import Explanation, LayerSize, SystemPackage, base_reason, explain_capabilities
    from px.store.objects import tree_spec

    present, disabled, left_out = explain_capabilities(derived.manifest, derived.inference)
    sizes = []
    for layer in layers:
        spec = tree_spec(context.store.payload(layer.kind, layer.oid))
        sizes.append(LayerSize(layer.what, sum(int(e[3]) for e in spec if e[0] == "f")))
    added = [p for layer in layers if layer.what == "system" for p in layer.packages]
    return Explanation(
        base=derived.base.name,
        base_why=base_reason(derived.manifest),
        architecture=derived.base.architecture,
        auto=derived.manifest.auto,
        capabilities=present,
        disabled=disabled,
        not_inferred=left_out,
        unknown=derived.inference.unknown,
        packages=tuple(SystemPackage(p.name, p.version) for p in added),
        layers=tuple(sizes),
        base_os_oid=derived.base.oid,
        profile_oid=derived.profile.oid,
        sbx_id=derived.definition.sbx_id,
        sbx_version=derived.definition.sbx_version,
        warnings=(derived.warning,) if derived.warning else (),
    )
