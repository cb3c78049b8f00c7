"""The page of ``px sandbox diff --html``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.sandbox.report.diff import ADDED, CHANGED, REMOVED, UPDATED, signed, total
from px.sandbox.report.page import parts
from px.sandbox.report.page.document import Page, render
from px.sandbox.report.page.markup import Html, facts, kind, number, row, section, table, tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.sandbox.report.diff import Difference

_NONE = "\N{EN DASH}"
_WORDS = {ADDED: "added", REMOVED: "removed", UPDATED: "updated", CHANGED: "other content"}
_CONTENTS = (
    ("weight", "What changed"),
    ("capabilities", "Capabilities"),
    ("packages-part", "Packages"),
    ("layers", "Layers"),
    ("ids", "Ids"),
)


def diff_page(found: Difference) -> bytes:
    """Two sandboxes side by side, as a file for a browser."""
    counts = ((_WORDS[what].capitalize(), str(len(found.of(what)))) for what in _WORDS if found.of(what))
    numbers = (*_sides(found), ("Unpacked", total(found)), *counts)
    legend = (kind(what, word) for what, word in _WORDS.items())
    areas = parts.areas(
        legend, tag("p", "Each area is as large as the difference that a package makes.", class_="screen")
    )
    same = tag("p", "The two are the same sandbox.")
    sections = (
        section("weight", "What changed", areas if found.changes else same),
        section("capabilities", "Capabilities", *_capabilities(found)),
        section("packages-part", "Packages", *_packages(found)),
        section("layers", "Layers", _layers(found)),
        _ids(found),
    )
    title = f"From {found.before.name} to {found.after.name}"
    data = {"tiles": _tiles(found), "sign": True}
    return render(Page(title, facts(numbers), sections, _CONTENTS, data))


def _sides(found: Difference) -> Iterator[tuple[str, str]]:
    for letter, side in (("A", found.before), ("B", found.after)):
        yield letter, f"{side.what}: {side.base} ({side.architecture})"


def _tiles(found: Difference) -> list[dict[str, object]]:
    return [
        {
            "group": _WORDS[c.what],
            "kind": c.what,
            "name": c.name,
            "version": c.versions,
            # A change of a version that weighs nothing is still one to see.
            "size": abs(c.weight) or 1,
            "text": signed(c.weight),
        }
        for c in found.changes
    ]


def _capabilities(found: Difference) -> Iterator[Html]:
    rows = [(ADDED, name, found.after.reasons) for name in found.added_capabilities]
    rows += [(REMOVED, name, found.before.reasons) for name in found.removed_capabilities]
    if rows:
        lines = (
            row(name, tag("td", kind(what, _WORDS[what])), "; ".join(why.get(name, ())) or "not known from an image")
            for what, name, why in rows
        )
        yield table(["Capability", "Change", "Why it was or is there"], lines)
    kept = sorted(set(found.before.capabilities) & set(found.after.capabilities))
    yield tag("p", f"In both: {', '.join(kept) or 'none'}.")


def _packages(found: Difference) -> Iterator[Html]:
    if not found.changes:
        yield tag("p", "Every package is the same.")
        return
    yield parts.filter_box("a package")
    rows = (
        row(
            c.name,
            tag("td", kind(c.what, _WORDS[c.what])),
            c.before or "",
            c.after or "",
            number(c.weight, signed(c.weight)),
            tag("td", console.size(c.size_after), class_="number wide", data_value=str(c.size_after)),
            tag("td", parts.KINDS[c.kind], class_="wide"),
        )
        for c in sorted(found.changes, key=lambda c: (-abs(c.weight), c.name))
    )
    titles = ["Name", "Change", "A", "B", "Difference", "Size now", "Kind"]
    yield table(
        titles, rows, numbers=["Difference", "Size now"], wide=["Size now", "Kind"], id="packages", class_="sorted"
    )


def _layers(found: Difference) -> Html:
    before, after = found.before.contents.layers(), found.after.contents.layers()
    rows = (
        row(
            what,
            number(before.get(what, 0), _size(before.get(what))),
            number(after.get(what, 0), _size(after.get(what))),
            number(difference := after.get(what, 0) - before.get(what, 0), signed(difference)),
        )
        for what in dict.fromkeys((*before, *after))
    )
    return table(["Layer", "A", "B", "Difference"], rows, numbers=["A", "B", "Difference"])


def _size(size: int | None) -> str:
    return _NONE if size is None else console.size(size)


def _ids(found: Difference) -> Html:
    names = dict.fromkeys((*found.before.ids, *found.after.ids))
    rows = {name: [side.ids.get(name, _NONE) for side in (found.before, found.after)] for name in names}
    return parts.ids("Ids", ["A", "B"], rows)
