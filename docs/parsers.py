"""The parsers of all commands, read once for the pages and tables that are made from them."""

from __future__ import annotations

import argparse
import importlib

from px.cli.main import COMMANDS, make_parser


def parser_of(name: str) -> argparse.ArgumentParser:
    parser = make_parser(name)
    importlib.import_module(f"px.cli.commands.{COMMANDS[name].module}").configure(parser)
    return parser


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]


def takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def explained(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of one argument, with its defaults filled in."""
    return parser._get_formatter()._expand_help(action) if action.help else ""


def value_name(action: argparse.Action) -> str:
    """How a person writes the value: ``NAME``, or the words that there are."""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def positional(action: argparse.Action) -> str:
    """As in ``px add PACKAGE…``."""
    name = value_name(action)
    shapes = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]", argparse.REMAINDER: "..."}
    return shapes.get(str(action.nargs), name)
