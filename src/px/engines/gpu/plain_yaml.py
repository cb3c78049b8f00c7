"""Reads the part of YAML that CDI specifications are written in, and refuses the rest.

Tables and lists by indentation, lists in brackets on one line, and texts with or without quotes.  No tags, anchors,
merged tables, texts over several lines or second documents: nvidia-ctk writes none of them.  All values are text.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DEEPEST = 30
_KEY = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[A-Za-z0-9_./-]+)\s*:(?:\s+|$)""")
_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,'"\[\]{}&*!|>%@`][^,\[\]{}]*)\s*(?:,|$)""")
_LONGEST_LINE = 4096
_FORBIDDEN = "&*!|>%@`{}[]"


def parse(text: str) -> Any:
    """The document.  Whatever is wrong with it, or is no part of the subset, is a ValueError."""
    lines = [row for number, line in enumerate(text.splitlines(), 1) if (row := _row(number, line)) is not None]
    if lines and lines[0][2] == "---":
        lines = lines[1:]
    if not lines:
        return None
    reader = _Reader(lines)
    found = reader.node(lines[0][1], 0)
    if reader.at < len(lines):
        raise ValueError(f"line {lines[reader.at][0]}: its indentation fits nowhere")
    return found


def _row(number: int, line: str) -> tuple[int, int, str] | None:
    """(number, indentation, content) of a line; None if there is nothing on it."""
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"line {number}: it is too long")
    content = _without_comment(line).rstrip()
    bare = content.lstrip(" ")
    if not bare:
        return None
    if bare[0] == "\t":
        raise ValueError(f"line {number}: it is indented by a tab")
    return number, len(content) - len(bare), bare


def _without_comment(line: str) -> str:
    quote, before, escaped = "", " ", False
    for at, sign in enumerate(line):
        if quote:
            quote = "" if sign == quote and not escaped else quote
            escaped = quote == '"' and sign == "\\" and not escaped
        elif sign in "'\"" and before in " [,":
            quote = sign
        elif sign == "#" and before in " \t":
            return line[:at]
        before = sign
    return line


class _Reader:
    """Reads from the first line to the last; ``at`` is the next one."""

    def __init__(self, lines: list[tuple[int, int, str]]):
        self.lines, self.at = lines, 0

    def node(self, indent: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self._wrong("it is nested too deeply")
        return self._list(indent, depth) if _is_item(self.lines[self.at][2]) else self._table(indent, depth)

    def _list(self, indent: int, depth: int) -> list[Any]:
        found = []
        while self._is_here(indent) and _is_item(self.lines[self.at][2]):
            number, _, content = self.lines[self.at]
            rest = content[1:].lstrip(" ")
            if not rest:
                self.at += 1
                found.append(self._below(indent, depth))
            elif _is_item(rest) or _KEY.match(rest):
                inner = indent + len(content) - len(rest)
                self.lines[self.at] = (number, inner, rest)  # a table that begins on the line of its dash
                found.append(self.node(inner, depth + 1))
            else:
                found.append(self._value(rest))
                self.at += 1
        return found

    def _table(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._is_here(indent) and not _is_item(self.lines[self.at][2]):
            content = self.lines[self.at][2]
            match = _KEY.match(content)
            if match is None:
                raise self._wrong("it is neither a key with a value nor an item of a list")
            key, rest = str(self._value(match[1])), content[match.end() :]
            if key in found:
                raise self._wrong(f"{key!r} is there twice")
            if rest:
                found[key] = self._value(rest)
                self.at += 1
            else:
                self.at += 1
                found[key] = self._below(indent, depth, lists=True)
        return found

    def _below(self, indent: int, depth: int, *, lists: bool = False) -> Any:
        """What belongs to the line before; a list may stand as far left as its key."""
        if self.at == len(self.lines):
            return None
        _, inner, content = self.lines[self.at]
        if inner > indent or (lists and inner == indent and _is_item(content)):
            return self.node(inner, depth + 1)
        return None

    def _is_here(self, indent: int) -> bool:
        if self.at == len(self.lines) or self.lines[self.at][1] < indent:
            return False
        if self.lines[self.at][1] > indent:
            raise self._wrong("its indentation fits nowhere")
        return True

    def _value(self, text: str) -> Any:
        if text in ("{}", "[]"):
            return {} if text == "{}" else []
        if text.startswith("[") and text.endswith("]"):
            return self._items(text[1:-1])
        return self._text(text)

    def _items(self, text: str) -> list[str]:
        found, at = [], 0
        while text[at:].strip():
            match = _ITEM.match(text, at)
            if match is None:
                raise self._wrong("px reads lists of plain texts only")
            found.append(self._text(match[1].strip()))
            at = match.end()
        return found

    def _text(self, text: str) -> str:
        if text[0] == '"':
            try:
                return str(json.loads(text))
            except ValueError:
                raise self._wrong("the quotes are not right") from None
        if len(text) > 1 and text[0] == text[-1] == "'":
            return text[1:-1].replace("''", "'")
        if text[0] in _FORBIDDEN or text[0] in "'\"" or ": " in text:
            raise self._wrong("px does not read this part of YAML")
        return text

    def _wrong(self, problem: str) -> ValueError:
        return ValueError(f"line {self.lines[min(self.at, len(self.lines) - 1)][0]}: {problem}")


def _is_item(content: str) -> bool:
    return content == "-" or content.startswith("- ")
