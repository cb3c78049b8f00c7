"""Why each capability is there, as a graph: package → file → library → capability → system packages."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from px import console

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from px.sandbox.needs.inference import Reason
    from px.sandbox.report.explain import ExplainedCapability, Explanation

COLUMNS = ("Package", "File", "Library", "Capability", "System packages")
_MOST = 8
"""So many system packages of a capability are shown one by one; the lighter ones beyond are one node."""


@dataclass
class Graph:
    """Nodes and edges, each once, in the order in which they were found."""

    nodes: dict[str, dict[str, object]] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def node(
        self, column: int, key: str, label: str, *, soft: str = "", text: str = "", within: Sequence[str] = ()
    ) -> str:
        name = f"{column}:{key}"
        given = {"id": name, "column": column, "label": label, "soft": soft, "text": text, "within": list(within)}
        self.nodes.setdefault(name, {k: v for k, v in given.items() if v or k == "column"})
        return name

    def edge(self, *path: str) -> None:
        """Connect nodes, each with the next."""
        self.edges |= dict.fromkeys(itertools.pairwise(path))

    def as_json(self) -> dict[str, object]:
        ordered = sorted(self.nodes.values(), key=lambda node: int(str(node["column"])))
        return {"columns": list(COLUMNS), "nodes": ordered, "edges": [list(edge) for edge in self.edges]}


def graph(explanation: Explanation, sizes: Mapping[str, int]) -> Graph:
    """The graph of the capabilities that are in the sandbox; ``sizes`` are those of system packages."""
    found = Graph()
    versions = {p.name: p.version for p in explanation.packages}
    for capability in explanation.capabilities:
        end = found.node(3, capability.name, capability.name, text=capability.summary)
        _causes(found, capability, end)
        _effects(found, capability, end, versions, sizes)
    return found


def _causes(found: Graph, capability: ExplainedCapability, end: str) -> None:
    if capability.explicit:
        start = found.node(0, "pyproject.toml", "pyproject.toml", soft="the manifest")
        found.edge(start, found.node(1, "capabilities", "[tool.px.sandbox.capabilities]"), end)
    for reason in capability.reasons:
        if reason.source != "elf":
            start = _package(found, reason)
            said = found.node(1, f"lock {reason.package} {reason.text}", reason.text, soft="px's own table")
            library = [found.node(2, reason.soname, reason.soname)] if reason.soname else []
            found.edge(start, said, *library, end)
    for files, reasons in _same_needs([r for r in capability.reasons if r.source == "elf"]):
        start, label = _package(found, reasons[0]), files[0].rpartition("/")[2]
        more = f"and {console.counted(len(files) - 1, 'other file')}" if len(files) > 1 else ""
        middle = found.node(1, f"{start} {files[0]}", label, soft=more, within=files)
        for soname in sorted({r.soname or "" for r in reasons}):
            found.edge(start, middle, found.node(2, soname, soname), end)


def _package(found: Graph, reason: Reason) -> str:
    return found.node(0, reason.package, reason.package, soft=reason.version)


def _same_needs(reasons: Iterable[Reason]) -> list[tuple[list[str], list[Reason]]]:
    """Files of one package that need the same libraries: large packages have hundreds of them."""
    needs: dict[tuple[str, str], list[Reason]] = defaultdict(list)
    for reason in reasons:
        needs[reason.package, reason.file or ""].append(reason)
    alike: dict[tuple[str, frozenset[str | None]], list[tuple[str, list[Reason]]]] = defaultdict(list)
    for (package, file), found in needs.items():
        alike[package, frozenset(r.soname for r in found)].append((file, found))
    return [(sorted(file for file, _ in group), group[0][1]) for group in alike.values()]


def _effects(
    found: Graph, capability: ExplainedCapability, start: str, versions: Mapping[str, str], sizes: Mapping[str, int]
) -> None:
    heavy = sorted((n for n in capability.packages if n in versions), key=lambda n: (-sizes.get(n, 0), n))
    shown = heavy if len(heavy) <= _MOST + 1 else heavy[:_MOST]
    for name in shown:
        found.edge(start, found.node(4, name, name, soft=f"{versions[name]}, {console.size(sizes.get(name, 0))}"))
    rest = heavy[len(shown) :]
    if rest:
        weight = console.size(sum(sizes.get(name, 0) for name in rest))
        lines = [f"{name} {versions[name]}, {console.size(sizes.get(name, 0))}" for name in rest]
        found.edge(
            start, found.node(4, f"rest {capability.name}", f"{len(rest)} lighter ones", soft=weight, within=lines)
        )
