"""A whole page: one file that loads nothing, and that may run no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA, __version__
from px.sandbox.report.page.markup import Html, clean, join, tag

if TYPE_CHECKING:
    from collections.abc import Mapping

# What ends a script element, and what is a line end in a script but not in JSON.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True)
class Page:
    """What differs from page to page."""

    title: str
    facts: Html
    sections: tuple[Html, ...]
    contents: tuple[tuple[str, str], ...]
    """Anchor and title of each section."""
    data: Mapping[str, object] = field(default_factory=dict)
    """What the script draws from."""


def render(page: Page) -> bytes:
    """The file.  The same page gives the same bytes: there is no date in it, and no name of a machine."""
    style, script = _asset("page.css"), _asset("page.js")
    links = [tag("li", tag("a", title, href=f"#{anchor}")) for anchor, title in page.contents]
    head = join(
        (
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("meta", name="generator", content=f"px {__version__}"),
            tag("title", page.title),
            Html(f"<style>{style}</style>"),
        )
    )
    top = tag("header", tag("h1", page.title), page.facts, tag("nav", tag("ul", *links), aria_label="On this page"))
    body = join((top, tag("main", *page.sections), _data(page.data), Html(f"<script>{script}</script>")))
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'.encode()


def _data(found: Mapping[str, object]) -> Html:
    text = json.dumps(_cleaned(found), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return Html(f'<script type="application/json" id="data">{text.translate(_IN_SCRIPT)}</script>')


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or framed; of styles and scripts only those of this file count, by their hashes."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return Path(DATA, "page", name).read_text(encoding="utf-8")
