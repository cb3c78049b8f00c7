"""The page of ``px sandbox explain --html``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.sandbox.report.contents import SYSTEM
from px.sandbox.report.explain import reason_line
from px.sandbox.report.page import parts
from px.sandbox.report.page.document import Page, render
from px.sandbox.report.page.graph import graph
from px.sandbox.report.page.markup import Html, facts, kind, section, tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.sandbox.report.contents import Contents
    from px.sandbox.report.explain import ExplainedCapability, Explanation

_CONTENTS = (
    ("weight", "What it weighs"),
    ("why", "Why it is there"),
    ("packages-part", "Packages"),
    ("licences", "Licences"),
    ("ids", "Ids"),
)


def explain_page(name: str, explanation: Explanation, contents: Contents) -> bytes:
    """The sandbox of a project, as a file for a browser."""
    e, sizes = explanation, {p.name: p.size for p in contents.packages if p.kind == SYSTEM}
    numbers = (
        ("Base", f"{e.base} ({e.architecture})"),
        ("Unpacked", console.size(contents.size)),
        ("Packages", str(len(contents.packages))),
        ("Capabilities", str(len(e.capabilities))),
        ("sbx_id", e.sbx_id[:12]),
    )
    legend = (kind(name, text) for name, text in parts.KINDS.items())
    sections = (
        section("weight", "What it weighs", parts.areas(legend), parts.layers(contents)),
        section("why", "Why it is there", *_why(e)),
        section(
            "packages-part", "Packages", parts.filter_box("a package or licence"), parts.packages(contents.packages)
        ),
        section("licences", "Licences", tag("p", _LICENCES), parts.licences(contents.packages)),
        _ids(e),
    )
    data = {"tiles": parts.tiles(contents), "graph": graph(e, sizes).as_json()}
    return render(Page(f"The sandbox of {name}", facts(numbers), sections, _CONTENTS, data))


_LICENCES = "As the packages state them: Python's in their metadata, Debian's in their copyright files."


def _why(e: Explanation) -> Iterator[Html]:
    yield tag("p", f"Base {e.base}: {e.base_why}.")
    if e.capabilities:
        yield tag("p", _FOLLOW, class_="screen")
        yield tag("div", id="graph", class_="graph", hidden=True)
        yield tag("div", _CHOOSE, id="graph-note", class_="note empty", hidden=True, aria_live="polite")
        yield tag("dl", *_rows(e.capabilities, "true"), class_="reasons")
    else:
        yield tag("p", "The env needs nothing of the system beyond the base.")
    if e.disabled:
        yield tag("h3", "Switched off")
        yield tag("div", tag("dl", *_rows(e.disabled, "false"), class_="reasons"), class_="text")
    if e.not_inferred:
        yield tag("h3", "Found, but not added, because auto = false")
        yield tag("div", tag("dl", *_rows(e.not_inferred, ""), class_="reasons"), class_="text")
    if e.unknown:
        yield tag("h3", "Libraries that px knows no capability for")
        lines = (tag("li", f"{u.package}: {u.file} needs {u.soname}") for u in e.unknown)
        yield tag("ul", *lines)
    yield from (tag("p", f"Warning: {warning}") for warning in e.warnings)


_FOLLOW = (
    "A package has a file, the file needs a library, a capability has the library and brings system packages. "
    "Choose anything to follow it in both directions."
)
_CHOOSE = "Nothing is chosen. Tab leads in, arrow keys follow the lines, Enter chooses, Esc lets go."


def _rows(capabilities: tuple[ExplainedCapability, ...], written: str) -> Iterator[Html]:
    for one in capabilities:
        yield tag("dt", f"{one.name}: {one.summary}")
        if one.explicit:
            yield tag("dd", f"[tool.px.sandbox.capabilities].{one.name} = {written}")
        yield from (tag("dd", reason_line(reason)) for reason in one.reasons)
        if one.packages:
            yield tag("dd", f"brings {', '.join(one.packages)}")


def _ids(e: Explanation) -> Html:
    rows = {"sbx_id": [e.sbx_id], "base_os_oid": [e.base_os_oid], "profile_oid": [e.profile_oid]}
    if e.pack_sbx_id and e.pack_sbx_id != e.sbx_id:
        rows["sbx_id of px pack image"] = [e.pack_sbx_id]
    return parts.ids("Ids", ["Value"], rows)
