"""The parts that pages have in common: areas, packages, licences, ids."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from px import console
from px.sandbox.report.page.markup import Html, identifier, kind, number, row, section, table, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from px.sandbox.report.contents import Contents, Package

KINDS = {"system": "system package", "python": "Python package", "other": "other files"}
_NAMES_SHOWN = 12


def areas(legend: Iterable[Html], *more: str) -> Html:
    """Where the script draws the areas."""
    say = "Arrow keys move from area to area. Each tells here what it is."
    return tag(
        "div",
        *more,
        tag("div", id="map", class_="map map-part", hidden=True, role="group", aria_label="Weights as areas"),
        tag("ul", *(tag("li", one) for one in legend), class_="legend map-part", hidden=True),
        tag("div", say, id="map-note", class_="note empty map-part", hidden=True, aria_live="polite"),
    )


def layers(contents: Contents) -> Html:
    found = contents.layers()
    largest = max(found.values(), default=1)
    rows = (row(what, number(size), tag("td", _bar(size, largest), class_="wide")) for what, size in found.items())
    return table(["Layer", "Size", ""], rows, numbers=["Size"], wide=[""])


def _bar(size: int, largest: int) -> Html:
    return tag("meter", console.size(size), min="0", max=str(max(largest, 1)), value=str(size), aria_hidden="true")


def tiles(contents: Contents) -> list[dict[str, object]]:
    """The areas of a sandbox: what each package weighs in each layer."""
    versions = {(p.kind, p.name): p.version for p in contents.packages}
    return [
        {
            "group": weight.layer,
            "kind": weight.kind,
            "name": weight.name,
            "size": weight.size,
            "version": versions.get((weight.kind, weight.name), ""),
        }
        for weight in contents.weights
    ]


def filter_box(noun: str) -> Html:
    hint = tag("span", "Press / to come here, Esc to clear.", class_="soft")
    field = tag("input", id="filter", type="search", autocomplete="off", spellcheck="false")
    label = tag("label", f"Find {noun}", for_="filter")
    return tag("div", label, field, tag("output", id="count", for_="filter"), hint, class_="filter", hidden=True)


def packages(found: Sequence[Package]) -> Html:
    rows = (
        row(
            p.name,
            p.version,
            number(p.size),
            tag("td", kind(p.kind, KINDS[p.kind]), class_="wide"),
            tag("td", ", ".join(p.licences) or "not stated", class_="wide"),
        )
        for p in sorted(found, key=lambda p: (-p.size, p.name))
    )
    titles = ["Name", "Version", "Size", "Kind", "Licences"]
    return table(titles, rows, numbers=["Size"], wide=["Kind", "Licences"], id="packages", class_="sorted")


def licences(found: Sequence[Package]) -> Html:
    names: dict[str, list[str]] = defaultdict(list)
    for package in found:
        for licence in package.licences or ("not stated",):
            names[licence].append(package.name)
    ordered = sorted(names.items(), key=lambda item: (-len(item[1]), item[0].lower()))
    rows = (row(name, number(len(those), str(len(those))), _some(those)) for name, those in ordered)
    return table(["Licence", "Packages", "Which"], rows, numbers=["Packages"])


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def ids(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Html:
    lines = (
        row(tag("td", tag("code", name)), *(tag("td", identifier(v)) for v in values)) for name, values in rows.items()
    )
    return section("ids", title, table(["Id", *columns], lines))
