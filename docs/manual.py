"""Manual pages, made from the parsers: one for px, one for each command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.parsers import actions, explained, parser_of, positional, takes_value, value_name
from px.cli.main import COMMANDS
from px.errors import EXIT_BY_FAMILY

if TYPE_CHECKING:
    import argparse

# No date and no version: a page changes when what it says does.
_HEAD = '.TH "{title}" "1" "" "px" "px\'s manual"'
_ABOUT = """\
px gives a locked Python project the operating system under it, pinned as exactly as its packages. An existing uv
project needs no change: px reads its pyproject.toml and uv.lock, infers the system libraries that the packages need,
and runs the project in a sandbox that has the same bytes on every machine."""
_EXIT = "px run and px test exit with the code of their target; 128 + n if signal n ended it."
_FILES = {
    "pyproject.toml": "the manifest; px reads [project], [tool.uv] and [tool.px]",
    "uv.lock": "the lock, or pylock.toml where the project has that and no uv.lock",
    ".px/": "links to the env of this machine; git ignores it",
    "~/.px": "the store, the envs and the images (also: PX_HOME)",
}


def pages() -> dict[str, str]:
    """File name -> text."""
    return {"px.1": _overview()} | {f"{_dashed(name)}.1": _command(name) for name in COMMANDS}


def _overview() -> str:
    lines = [_HEAD.format(title="PX"), ".SH NAME", r"px \- deterministic sandboxes for Python", ".SH SYNOPSIS"]
    lines += [r"\fBpx\fR [\fIflags\fR] \fICOMMAND\fR [\fIarguments\fR]", ".SH DESCRIPTION", _text(_ABOUT)]
    lines += [".SH COMMANDS"]
    for name, command in COMMANDS.items():
        lines += [
            ".TP",
            rf"\fB{_text('px ' + name)}\fR (\fB{_text(_dashed(name))}\fR(1))",
            _text(command.summary + "."),
        ]
    lines += _options(parser_of("doctor"))
    lines += [
        ".SH EXIT STATUS",
        _text("px run and px test exit with the code of their target; 128 + n if signal n ended it."),
    ]
    lines += [_text(f"Errors of px: {', '.join(f'PX{f}xx {code}' for f, code in EXIT_BY_FAMILY.items())}; usage 2.")]
    lines += [".SH FILES"]
    for path, about in _FILES.items():
        lines += [".TP", rf"\fB{_text(path)}\fR", _text(about)]
    return "\n".join(lines) + "\n"


def _command(name: str) -> str:
    parser = parser_of(name)
    title = _dashed(name)
    lines = [
        _HEAD.format(title=title.upper()),
        ".SH NAME",
        rf"{_text(title)} \- {_text(COMMANDS[name].summary.lower())}",
    ]
    words = [_text(positional(a)) for a in actions(parser) if not a.option_strings]
    lines += [".SH SYNOPSIS", " ".join([rf"\fB{_text('px ' + name)}\fR [\fIflags\fR]", *words])]
    lines += [".SH DESCRIPTION", _text(parser.description or "")]
    if parser.epilog:
        lines += [".PP", _text(parser.epilog.rstrip("\n"))]
    arguments = [a for a in actions(parser) if not a.option_strings]
    if arguments:
        lines += [".SH ARGUMENTS"]
        for action in arguments:
            lines += [".TP", rf"\fI{_text(value_name(action))}\fR", _text(explained(parser, action))]
    lines += _options(parser)
    return "\n".join([*lines, ".SH SEE ALSO", r"\fBpx\fR(1)"]) + "\n"


def _options(parser: argparse.ArgumentParser) -> list[str]:
    lines = [".SH OPTIONS"]
    for group in parser._action_groups:
        rows = [a for a in group._group_actions if a.option_strings and a in actions(parser)]
        if not rows:
            continue
        lines += [f".SS {_text(group.title or '')}"]
        for action in rows:
            value = rf" \fI{_text(value_name(action))}\fR" if takes_value(action) else ""
            names = ", ".join(rf"\fB{_text(flag)}\fR" for flag in action.option_strings)
            lines += [".TP", names + value, _text(explained(parser, action))]
    return lines


def _dashed(name: str) -> str:
    return "px-" + name.replace(" ", "-")


def _text(words: str) -> str:
    """Words as roff takes them: no character of theirs is a command."""
    escaped = words.replace("\\", r"\e").replace("-", r"\-")
    return "\n".join(rf"\&{line}" if line[:1] in {".", "'"} else line for line in escaped.split("\n"))
