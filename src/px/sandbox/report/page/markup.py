"""HTML in pieces.  Text is escaped unless it is a piece itself, so what packages say can never become markup."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from px import console

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Control characters, and those that turn the direction of the text around them.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_EMPTY = frozenset({"input", "meta"})


class Html(str):
    """A piece of a document, made by :func:`tag`."""

    __slots__ = ()


def clean(text: str) -> str:
    """The text, with a sign for everything in it that no page should have."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escape(text: str) -> str:
    return html.escape(clean(text), quote=True)


def tag(name: str, /, *children: str, **attributes: str | bool) -> Html:
    """An element.  ``class_`` is class, ``data_value`` is data-value; True is an attribute without a value."""
    given = (
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False
    )
    start = f"<{name}{''.join(given)}>"
    inside = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(start if name in _EMPTY else f"{start}{inside}</{name}>")


def join(pieces: Iterable[Html]) -> Html:
    return Html("\n".join(pieces))


def section(anchor: str, title: str, *children: str) -> Html:
    return tag("section", tag("h2", title), *children, id=anchor)


def table(
    titles: Sequence[str],
    rows: Iterable[Html],
    *,
    numbers: Sequence[str] = (),
    wide: Sequence[str] = (),
    **attributes: str,
) -> Html:
    """A table; ``numbers`` are the titles of its columns of numbers, ``wide`` of those that a phone leaves out."""

    def named(title: str) -> Html:
        classes = " ".join(["number"] * (title in numbers) + ["wide"] * (title in wide))
        return tag("th", title, scope="col", class_=classes or False)

    head = tag("thead", tag("tr", *map(named, titles)))
    return tag("table", head, tag("tbody", join(rows)), **attributes)


def row(*cells: str) -> Html:
    return tag(
        "tr", *(cell if cell.startswith("<td") and isinstance(cell, Html) else tag("td", cell) for cell in cells)
    )


def number(value: int, text: str = "") -> Html:
    """A cell with a size."""
    return tag("td", text or console.size(value), class_="number", data_value=str(value))


def kind(name: str, text: str = "") -> Html:
    """A word with the colour that stands for it."""
    return tag("span", text or name, class_=f"kind {name}")


def facts(rows: Iterable[tuple[str, str]]) -> Html:
    """The few numbers at the top of a page."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in rows), class_="facts")


def identifier(text: str) -> Html:
    return tag("span", text, class_="id")
