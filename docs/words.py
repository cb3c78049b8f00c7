"""The table that completions are answered from (``src/px/data/completions/words.tsv``), made from the parsers.

A Tab must not import the parsers of thirty commands, so what they say is written down.  A row has four columns:

    command    name    what it takes    what it is

The command is empty for what may stand in its place.  ``=capability`` and ``=base`` stand before the names that there
are.  A name that starts with ``-`` is a flag, ``*`` an argument.  What it takes is empty for a flag without a value,
else a kind that ``px.cli.complete`` knows, or words with ``|`` between them.
"""

from __future__ import annotations

import argparse

from docs.parsers import actions, explained, parser_of, takes_value
from px.cli.main import COMMANDS, GROUPS
from px.platforms import ARCHITECTURES
from px.sandbox.layers.base import known_bases
from px.sandbox.needs.capabilities import table

_BY_DEST = {
    "group": "group",
    "no_group": "group",
    "extra": "extra",
    "optional": "extra",
    "capability": "capability",
    "target": "target",
    "base": "base",
    "engine": "bubblewrap|docker|podman",
    "network": "host|none|allow",
    "architecture": "|".join(ARCHITECTURES),
    "platform": "|".join(a.platform for a in ARCHITECTURES.values()),
    "image": "file",
    "out": "file",
    "volume": "file",
    "advisories": "file",
    "files": "directory",
}
_BY_METAVAR = {"DIR": "directory", "FILE": "file", "PATH": "file"}
# Arguments that are names of what the project requires.
_REQUIRED = {"remove", "update", "why"}


def words() -> str:
    rows = [_row("", name, "", command.summary) for name, command in COMMANDS.items()]
    rows += [_row("", group, "", about) for group, about in GROUPS.items()]
    rows += [_row("", "--version", "", "print the version")]
    rows += [_row("=capability", name, "", one.summary) for name, one in table().items()]
    rows += [_row("=base", name, "", "") for name in known_bases()]
    for name in COMMANDS:
        parser = parser_of(name)
        for action in actions(parser):
            rows += _rows(name, action, explained(parser, action))
    return "".join(rows)


def _rows(command: str, action: argparse.Action, about: str) -> list[str]:
    takes = _kind(command, action)
    if not action.option_strings:
        return [_row(command, "*", takes, about)]
    return [_row(command, flag, takes, about) for flag in action.option_strings]


def _kind(command: str, action: argparse.Action) -> str:
    if not takes_value(action):
        return ""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    if not action.option_strings and command in _REQUIRED:
        return "requirement"
    if not action.option_strings and command.startswith("base "):
        return "base"
    if action.nargs == argparse.REMAINDER:
        return "rest"
    return _BY_DEST.get(action.dest) or _BY_METAVAR.get(str(action.metavar)) or "any"


def _row(*cells: str) -> str:
    return "\t".join(" ".join(cell.split()) for cell in cells) + "\n"
